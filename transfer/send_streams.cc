#include "transfer/send_streams.h"

#include <utility>

#include "base/status.h"

namespace tandem {

absl::StatusOr<uint64_t> SendStreams::Open(StreamKey key, StreamEnded ended) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return Unavailable("the transport was shut down");
  const auto [place, added] =
      open_.try_emplace(key, Entry{.serial = next_serial_, .ended = std::move(ended)});
  if (!added) {
    return Internal("stream {} of epoch {:#x} is open already", key.stream, key.epoch);
  }
  return next_serial_++;
}

absl::StatusOr<std::optional<uint64_t>> SendStreams::Admit(StreamKey key,
                                                           std::span<const PostedExtent> extents) {
  for (const PostedExtent& extent : extents) {
    const size_t bytes = extent.payload.size();
    if (bytes > 0 && bytes <= kMaxPayloadBytes) continue;
    return InvalidArgument("stream {}: payload of {} bytes: must have between 1 and {}", key.stream,
                           bytes, kMaxPayloadBytes);
  }
  absl::MutexLock lock(&mutex_);
  const auto place = open_.find(key);
  if (place == open_.end()) return std::nullopt;
  Entry& entry = place->second;
  if (entry.finished) return Internal("stream {}: a frame after its commit", key.stream);
  if (extents.size() > max_frames_ - entry.frames) {
    return ResourceExhausted("stream {}: {} frames are posted, {} more would be over {}",
                             key.stream, entry.frames, extents.size(), max_frames_);
  }
  entry.frames += extents.size();
  return entry.serial;
}

absl::StatusOr<std::optional<SendStreams::Commit>> SendStreams::Finish(StreamKey key) {
  absl::MutexLock lock(&mutex_);
  const auto place = open_.find(key);
  if (place == open_.end()) return std::nullopt;
  Entry& entry = place->second;
  if (entry.finished) return Internal("stream {}: committed twice", key.stream);
  entry.finished = true;
  return Commit{.serial = entry.serial, .frames = entry.frames};
}

std::optional<uint64_t> SendStreams::Find(StreamKey key) const {
  absl::MutexLock lock(&mutex_);
  const auto place = open_.find(key);
  if (place == open_.end()) return std::nullopt;
  return place->second.serial;
}

void SendStreams::End(StreamKey key, uint64_t serial, const absl::Status& status) {
  StreamEnded ended;
  {
    absl::MutexLock lock(&mutex_);
    const auto place = open_.find(key);
    if (place == open_.end() || place->second.serial != serial) return;
    ended = std::move(place->second.ended);
    open_.erase(place);
  }
  ended(key.stream, key.epoch, status);
}

void SendStreams::Close(const absl::Status& status) {
  absl::flat_hash_map<StreamKey, Entry> ending;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    ending = std::exchange(open_, {});
  }
  for (auto& [key, entry] : ending) entry.ended(key.stream, key.epoch, status);
}

}  // namespace tandem
