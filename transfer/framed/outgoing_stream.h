#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "transfer/transport.h"
#include "transfer/wire/frame.h"

namespace tandem {

class OutgoingStream;
class PeerStreams;

// The commands that other threads queue for the I/O loop.
struct OpenCommand {
  std::shared_ptr<OutgoingStream> stream;
  std::string peer;
  Duration renew_every{};
};
struct PostCommand {
  std::shared_ptr<OutgoingStream> stream;
  std::vector<PostedExtent> extents;
};
struct FinishCommand {
  std::shared_ptr<OutgoingStream> stream;
  uint64_t frames = 0;  // data frames of the whole stream
};
struct AbortCommand {
  std::shared_ptr<OutgoingStream> stream;
  absl::Notification* done = nullptr;  // notified once no payload of the stream is read any more
};
using StreamCommand = std::variant<OpenCommand, PostCommand, FinishCommand, AbortCommand>;

// The part of a transport that its streams call.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  // Whether the transport can send this payload; INVALID_ARGUMENT when it cannot.
  virtual absl::Status CheckPayload(uint64_t stream, std::span<const std::byte> payload) const = 0;
  // Queues a command for the loop's thread. Never blocks.
  virtual void Queue(StreamCommand command) = 0;
  virtual bool IsLoopThread() const = 0;
  // Does the work of SendStream::Abort; called on the loop's thread.
  virtual void AbortNow(OutgoingStream& stream) = 0;
};

// How far the loop is with sending one stream. PeerStreams has the states.
struct SendProgress {
  enum class Phase : uint8_t { kStreaming, kFinishing, kAwaiting };

  PeerStreams* peer = nullptr;  // null before the loop has opened the stream and after its end
  Phase phase = Phase::kStreaming;
  // All extents are kept until the end, since the peer may ask for any of them again.
  std::vector<PostedExtent> posted;
  size_t next = 0;              // index into `posted` of the first extent that was never sent
  std::deque<uint32_t> resend;  // indices into `posted` that the peer asked for again
  // Maps layer and block to an index into `posted`; filled at the first resend.
  absl::flat_hash_map<uint64_t, uint32_t> index;
  bool has_turn = false;  // whether the stream is in the queue of those with data
  uint64_t frames = 0;    // the number of data frames that its commit names
  uint32_t first_commit = 0;
  int rounds = 0;  // how many times the peer asked for missing extents
  Duration renew_every{};
  TimePoint renew_at = kNoDeadline;
  bool renewal_queued = false;
  bool unanswered = false;  // the latest commit got no answer for the time of a renewal

  bool has_data() const { return next < posted.size() || !resend.empty(); }
  const PostedExtent& NextExtent() const {
    return posted[next < posted.size() ? next : resend.front()];
  }
  void TakeExtent();
  uint64_t UnsentBytes() const;
};

// One opening of a stream. Opening the same key again makes another object, so work that is queued
// for an aborted stream is never taken for its successor's.
// Thread-safe, except for `progress`, which belongs to the loop's thread.
class OutgoingStream final : public SendStream,
                             public std::enable_shared_from_this<OutgoingStream> {
 public:
  OutgoingStream(StreamKey key, uint64_t max_frames, const SendLink& link, StreamOwner& owner,
                 StreamEnded ended)
      : key_(key), max_frames_(max_frames), link_(link), owner_(owner), ended_(std::move(ended)) {}

  StreamKey key() const { return key_; }
  SendLink link() const override { return link_; }

  absl::Status Post(std::span<const PostedExtent> extents) override;
  absl::Status Finish() override;
  void Abort() override;

  // Ends the stream: calls `ended`, unless the stream has ended already.
  void End(const absl::Status& status);

  SendProgress progress;

 private:
  absl::Status CheckExtent(const PostedExtent& extent) const;

  const StreamKey key_;
  const uint64_t max_frames_;
  const SendLink link_;
  StreamOwner& owner_;  // may be gone once the stream has ended
  absl::Mutex mutex_;
  StreamEnded ended_ ABSL_GUARDED_BY(mutex_);  // null once the stream has ended
  uint64_t frames_ ABSL_GUARDED_BY(mutex_) = 0;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// The streams of a transport that have not ended, by the key that the wire knows them by.
// Thread-safe.
class OpenStreams {
 public:
  // Adds a stream. UNAVAILABLE after Close; INTERNAL when a stream with its key is open already.
  absl::Status Add(const std::shared_ptr<OutgoingStream>& stream);
  // The open stream with this key, or null.
  std::shared_ptr<OutgoingStream> Find(StreamKey key) const;
  // Removes the stream, then calls its `ended`, so that the callback may open the key again.
  void End(OutgoingStream& stream, const absl::Status& status);
  // Ends all streams and refuses further ones.
  void Close(const absl::Status& status);

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<StreamKey, std::shared_ptr<OutgoingStream>> open_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
