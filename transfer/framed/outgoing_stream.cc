#include "transfer/framed/outgoing_stream.h"

#include <utility>

#include "base/status.h"

namespace tandem {

void SendProgress::TakeExtent() {
  if (next < posted.size()) {
    ++next;
  } else {
    resend.pop_front();
  }
}

uint64_t SendProgress::UnsentBytes() const {
  uint64_t bytes = 0;
  for (size_t i = next; i < posted.size(); ++i) bytes += posted[i].payload.size();
  for (const uint32_t i : resend) bytes += posted[i].payload.size();
  return bytes;
}

absl::Status OutgoingStream::CheckExtent(const PostedExtent& extent) const {
  const size_t bytes = extent.payload.size();
  if (bytes > 0 && bytes <= kMaxPayloadBytes) {
    return owner_.CheckPayload(key_.stream, extent.payload);
  }
  return InvalidArgument("stream {}: payload of {} bytes: must have between 1 and {}", key_.stream,
                         bytes, kMaxPayloadBytes);
}

// Commands are queued under the mutex. End takes it too, and the owner exists until the stream has
// ended, so the owner outlives every use here.
absl::Status OutgoingStream::Post(std::span<const PostedExtent> extents) {
  absl::MutexLock lock(&mutex_);
  if (ended_ == nullptr) return absl::OkStatus();
  for (const PostedExtent& extent : extents) RETURN_IF_ERROR(CheckExtent(extent));
  if (finished_) return Internal("stream {}: a frame after its commit", key_.stream);
  if (extents.size() > max_frames_ - frames_) {
    return ResourceExhausted("stream {}: {} frames are posted, {} more would be over {}",
                             key_.stream, frames_, extents.size(), max_frames_);
  }
  frames_ += extents.size();
  if (extents.empty()) return absl::OkStatus();
  owner_.Queue(
      PostCommand{.stream = shared_from_this(), .extents = {extents.begin(), extents.end()}});
  return absl::OkStatus();
}

absl::Status OutgoingStream::Finish() {
  absl::MutexLock lock(&mutex_);
  if (ended_ == nullptr) return absl::OkStatus();
  if (std::exchange(finished_, true)) {
    return Internal("stream {}: committed twice", key_.stream);
  }
  owner_.Queue(FinishCommand{.stream = shared_from_this(), .frames = frames_});
  return absl::OkStatus();
}

void OutgoingStream::Abort() {
  absl::Notification done;
  bool queued = false;
  {
    absl::MutexLock lock(&mutex_);
    // Nothing is left to do for an ended stream, whose payloads were released before its end.
    if (ended_ == nullptr) return;
    // The loop's thread cannot wait for itself. It need not hold the mutex either: only that thread
    // ends streams, so the stream stays open during this call.
    queued = !owner_.IsLoopThread();
    if (queued) owner_.Queue(AbortCommand{.stream = shared_from_this(), .done = &done});
  }
  if (queued) {
    done.WaitForNotification();
  } else {
    owner_.AbortNow(*this);
  }
}

void OutgoingStream::End(const absl::Status& status) {
  StreamEnded ended;
  {
    absl::MutexLock lock(&mutex_);
    ended = std::exchange(ended_, nullptr);
  }
  if (ended != nullptr) ended(key_.stream, key_.epoch, status);
}

absl::Status OpenStreams::Add(const std::shared_ptr<OutgoingStream>& stream) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return Unavailable("the transport was shut down");
  const StreamKey key = stream->key();
  if (open_.try_emplace(key, stream).second) return absl::OkStatus();
  return Internal("stream {} of epoch {:#x} is open already", key.stream, key.epoch);
}

std::shared_ptr<OutgoingStream> OpenStreams::Find(StreamKey key) const {
  absl::MutexLock lock(&mutex_);
  const auto place = open_.find(key);
  return place == open_.end() ? nullptr : place->second;
}

void OpenStreams::End(OutgoingStream& stream, const absl::Status& status) {
  const std::shared_ptr<OutgoingStream> kept = stream.shared_from_this();
  {
    absl::MutexLock lock(&mutex_);
    const auto place = open_.find(stream.key());
    if (place != open_.end() && place->second == kept) open_.erase(place);
  }
  stream.End(status);
}

void OpenStreams::Close(const absl::Status& status) {
  absl::flat_hash_map<StreamKey, std::shared_ptr<OutgoingStream>> ending;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    ending = std::exchange(open_, {});
  }
  for (auto& [key, stream] : ending) stream->End(status);
}

}  // namespace tandem
