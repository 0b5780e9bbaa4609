#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "transfer/frame.h"
#include "transfer/refused_streams.h"

namespace tandem {

// The receiving side toward one sender: which connections it made, which commits have come on some
// of them, how much of its payload was consumed.
// Thread: the loop's.
class InboundGroup {
 public:
  // `window`: bytes of payload that the sender may have under way. While payload comes the sender
  // hears something every `answer_every`.
  InboundGroup(uint32_t connections, uint64_t window,
               Duration answer_every = std::chrono::seconds(1))
      : connections_(connections), window_(window), answer_every_(answer_every) {}

  // The connection that the loop knows as `id` is number `index` of the group.
  // INVALID_ARGUMENT when that is there already, or the hello says another number of connections.
  absl::Status Join(const FrameHeader& hello, uint64_t id);
  // The ids of those that joined.
  const std::vector<uint64_t>& members() const { return members_; }

  // Whether the commit has come on every connection, so that all data of its stream has, too.
  // RESOURCE_EXHAUSTED when too many wait for their other connections.
  absl::StatusOr<bool> CommitCame(const FrameHeader& commit, uint32_t index);

  // Payload of the sender has landed, was dropped, or will never come. Less than nothing where the
  // same came twice.
  void Consumed(int64_t payload_bytes) { consumed_ += static_cast<uint64_t>(payload_bytes); }
  // The credit to tell the sender of; empty while it is not worth a frame. With kAll any more than
  // was told is worth one, with kRepeat what was told is, too: the frame may have been lost.
  // kWorthAFrame is asked after each read of a payload: so time makes worth a frame what has just
  // been consumed, and of a payload that is long in coming what was told already.
  enum class Grant : uint8_t { kWorthAFrame, kAll, kRepeat };
  std::optional<uint64_t> TakeGrant(Grant grant, TimePoint now);

  RefusedStreams& refused() { return refused_; }

 private:
  static constexpr size_t kMaxPendingCommits = 4096;
  struct PendingCommit {
    uint32_t number = 0;
    uint32_t came_on = 0;  // a bit for each connection
  };

  std::optional<uint64_t> TakeByTime(uint64_t allowed, bool fresh, TimePoint now);

  const uint32_t connections_;
  const uint64_t window_;
  const Duration answer_every_;
  uint32_t joined_ = 0;  // a bit for each connection
  std::vector<uint64_t> members_;
  absl::flat_hash_map<StreamKey, PendingCommit> pending_;
  uint64_t consumed_ = 0;
  uint64_t granted_ = 0;
  uint64_t looked_at_ = 0;                // of consumed_
  TimePoint coming_since_ = kNoDeadline;  // what is not granted yet
  TimePoint repeated_at_{};
  RefusedStreams refused_;
};

}  // namespace tandem
