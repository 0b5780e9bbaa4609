#include "transfer/media/shm/ring_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/status.h"

namespace tandem {
namespace {

absl::Status Gone() { return Unavailable("the peer closed the connection"); }

}  // namespace

absl::StatusOr<size_t> RingStream::Read(std::span<const iovec> parts) {
  ASSIGN_OR_RETURN(const bool unrung, TakeWakes());
  ASSIGN_OR_RETURN(const size_t count, Get(parts));
  if (count > 0) return count;
  // Bytes that the peer wrote before it died are still read.
  if (unrung) RETURN_IF_ERROR(LookForTheEnd());
  ASSIGN_OR_RETURN(const bool more, AwaitInput());
  if (more) return Get(parts);
  if (peer_gone_) return Gone();
  return 0;
}

absl::StatusOr<size_t> RingStream::Write(std::span<const iovec> parts) {
  const bool was_blocked = std::exchange(blocked_, false);
  if (peer_gone_) return Gone();
  ASSIGN_OR_RETURN(const size_t count, Put(parts));
  if (count > 0) return count;
  ASSIGN_OR_RETURN(const bool room, AwaitRoom());
  if (room) return Put(parts);
  if (was_blocked) RETURN_IF_ERROR(LookForTheEnd());
  if (peer_gone_) return Gone();
  blocked_ = true;
  return 0;
}

absl::StatusOr<size_t> RingStream::Get(std::span<const iovec> parts) {
  size_t total = 0;
  for (const iovec& part : parts) {
    std::span<std::byte> rest(static_cast<std::byte*>(part.iov_base), part.iov_len);
    while (!rest.empty()) {
      ASSIGN_OR_RETURN(
          const size_t count,
          in_.Get(rest.first(std::min(rest.size(), in_.piece_bytes() - in_.pending()))));
      if (count == 0) break;
      total += count;
      rest = rest.subspan(count);
      if (in_.pending() == in_.piece_bytes() && in_.Release()) doorbell_.Ring();
    }
    if (!rest.empty()) break;
  }
  return total;
}

absl::StatusOr<size_t> RingStream::Put(std::span<const iovec> parts) {
  size_t total = 0;
  for (const iovec& part : parts) {
    std::span<const std::byte> rest(static_cast<const std::byte*>(part.iov_base), part.iov_len);
    while (!rest.empty()) {
      ASSIGN_OR_RETURN(
          const size_t count,
          out_.Put(rest.first(std::min(rest.size(), out_.piece_bytes() - out_.pending()))));
      if (count == 0) break;
      total += count;
      rest = rest.subspan(count);
      if (out_.pending() == out_.piece_bytes() && out_.Publish()) doorbell_.Ring();
    }
    if (!rest.empty()) break;
  }
  if (out_.pending() > 0 && out_.Publish()) doorbell_.Ring();
  return total;
}

absl::StatusOr<bool> RingStream::AwaitInput() {
  Note(in_.Arm());
  ASSIGN_OR_RETURN(const size_t waiting, in_.Waiting());
  if (waiting > 0) Note(in_.Disarm());
  return waiting > 0;
}

absl::StatusOr<bool> RingStream::AwaitRoom() {
  Note(out_.Arm());
  ASSIGN_OR_RETURN(const size_t room, out_.Room());
  if (room > 0) Note(out_.Disarm());
  return room > 0;
}

// Whether a wake-up is owed and none has come, so that something else may have caused the event.
absl::StatusOr<bool> RingStream::TakeWakes() {
  if (wakes_owed_ == 0) return false;
  ASSIGN_OR_RETURN(const uint64_t count, doorbell_.Take());
  if (count > wakes_owed_) {
    return FailedPrecondition("the peer rang {} times where it owed {}", count, wakes_owed_);
  }
  wakes_owed_ -= count;
  if (count > 0) LeaveWritersCore();
  if (count > 0 && blocked_ && !out_.armed()) {
    doorbell_.RingOwn();  // the wake-up was for Write, which is called later
    ++wakes_owed_;
  }
  return count == 0;
}

void RingStream::LeaveWritersCore() {
  if (core_choice_ == nullptr) return;
  const auto waiting = in_.Waiting();
  if (waiting.ok() && *waiting > 0) core_choice_->WokenBy(in_.writer_core());
}

absl::Status RingStream::LookForTheEnd() {
  std::byte byte;
  const ssize_t count = recv(socket_, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  if (count > 0) return FailedPrecondition("the peer sent bytes behind its greeting");
  if (count == 0 || (errno != EAGAIN && errno != EINTR)) peer_gone_ = true;
  return absl::OkStatus();
}

void RingStream::Note(SleepChange change) {
  if (change == SleepChange::kArmed) ++wakes_owed_;
  if (change == SleepChange::kDisarmed && wakes_owed_ > 0) --wakes_owed_;
}

}  // namespace tandem
