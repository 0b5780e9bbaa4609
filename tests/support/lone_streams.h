#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "transfer/framed/outgoing_stream.h"

namespace tandem {

// Streams to send without a transport: what they queue for the loop is kept here.
class LoneStreams final : private StreamOwner {
 public:
  explicit LoneStreams(uint64_t max_frames = 1 << 18) : max_frames_(max_frames) {}
  ~LoneStreams() { streams_.Close(absl::UnavailableError("over")); }

  OpenStreams& streams() { return streams_; }
  const std::vector<StreamCommand>& commands() const { return commands_; }

  // Null when the key is open already.
  std::shared_ptr<OutgoingStream> Open(
      StreamKey key, StreamEnded ended = [](uint64_t, uint64_t, const absl::Status&) {}) {
    StreamOwner& owner = *this;
    auto stream =
        std::make_shared<OutgoingStream>(key, max_frames_, SendLink{}, owner, std::move(ended));
    return streams_.Add(stream).ok() ? stream : nullptr;
  }

 private:
  absl::Status CheckPayload(uint64_t, std::span<const std::byte>) const override {
    return absl::OkStatus();
  }
  void Queue(StreamCommand command) override { commands_.push_back(std::move(command)); }
  bool IsLoopThread() const override { return true; }
  void AbortNow(OutgoingStream& stream) override {
    streams_.End(stream, absl::CancelledError("aborted"));
  }

  const uint64_t max_frames_;
  OpenStreams streams_;
  std::vector<StreamCommand> commands_;
};

}  // namespace tandem
