#include "transfer/media/shm/area.h"

#include "base/check.h"
#include "base/status.h"

namespace tandem {

size_t AreaWriter::KnownRoom() const {
  // The bytes from seen_released_ on are in use. A piece does not cross the end of the area.
  const uint64_t taken = begin() - seen_released_;
  if (taken > area_.size()) return 0;
  const size_t to_end = area_.size() - begin() % area_.size();
  const size_t room = std::min(area_.size() - static_cast<size_t>(taken), to_end);
  return room >= piece_bytes_ ? room : 0;
}

absl::StatusOr<size_t> AreaWriter::Room() {
  if (const size_t known = KnownRoom(); known > 0) return known;
  const uint64_t released = control_->released.load();
  // The index only grows, and never beyond what was written.
  if (released < seen_released_ || released > next_) {
    return FailedPrecondition("the reader is done with {} bytes: {} were, of {}", released,
                              seen_released_, next_);
  }
  seen_released_ = released;
  return KnownRoom();
}

uint64_t AreaWriter::Take(size_t bytes) {
  const uint64_t handle = to_end() >= bytes ? next_ : begin();
  TANDEM_CHECK(handle + bytes - seen_released_ <= area_.size(), "taken without room");
  next_ = handle + bytes;
  return handle;
}

SleepChange AreaWriter::Arm() {
  const uint64_t end = begin() + piece_bytes_;
  control_->wake_at.store(end > area_.size() ? end - area_.size() : 0);
  return control_->writer_sleeps.exchange(1) == 0 ? SleepChange::kArmed : SleepChange::kNone;
}

SleepChange AreaWriter::Disarm() {
  return control_->writer_sleeps.exchange(0) != 0 ? SleepChange::kDisarmed : SleepChange::kNone;
}

absl::StatusOr<std::span<const std::byte>> AreaReader::Find(uint64_t handle, size_t bytes) const {
  const size_t offset = handle % area_.size();
  const bool inside = bytes > 0 && bytes <= area_.size() - offset;
  if (inside && handle - released_ <= area_.size() - bytes) return area_.subspan(offset, bytes);
  return InvalidArgument("a payload of {} bytes at {} of an area of {}, of which {} are done with",
                         bytes, handle, area_.size(), released_);
}

bool AreaReader::Release(uint64_t handle) {
  if (handle <= released_) return false;
  released_ = handle;
  control_->released.store(handle);
  return control_->writer_sleeps.load() != 0 && handle >= control_->wake_at.load() &&
         control_->writer_sleeps.exchange(0) != 0;
}

}  // namespace tandem
