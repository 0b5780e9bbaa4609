#include "transfer/framed/inbound_group.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// However large the window: the sender sees by it how fast the link is (LinkMeter).
constexpr uint64_t kEnoughForAFrame = 4 << 20;

}  // namespace

absl::Status InboundGroup::Join(const FrameHeader& hello, uint64_t id) {
  const uint32_t bit = 1u << hello.layer;
  if (hello.block != connections_ || (joined_ & bit) != 0) {
    return InvalidArgument("hello of connection {} of {}: its group has {}, that one among them",
                           hello.layer, hello.block, connections_);
  }
  joined_ |= bit;
  members_.push_back(id);
  return absl::OkStatus();
}

absl::StatusOr<bool> InboundGroup::CommitCame(const FrameHeader& commit, uint32_t index) {
  if (connections_ == 1) return true;
  if (pending_.size() >= kMaxPendingCommits && !pending_.contains(KeyOf(commit))) {
    return ResourceExhausted("{} commits have come on some connections only", pending_.size());
  }
  PendingCommit& pending = pending_[KeyOf(commit)];
  // A higher number: the stream was opened again before its commit was everywhere. What still comes
  // of the earlier commit, on slower connections, must not take the later one's place.
  if (commit.block < pending.number) return false;
  if (commit.block > pending.number) pending = {.number = commit.block};
  pending.came_on |= 1u << index;
  if (pending.came_on != (1u << connections_) - 1) return false;
  pending_.erase(KeyOf(commit));
  return true;
}

std::optional<uint64_t> InboundGroup::TakeGrant(Grant grant, TimePoint now) {
  const uint64_t allowed = consumed_ + window_;
  const bool fresh = std::exchange(looked_at_, consumed_) != consumed_;
  const uint64_t worth = grant == Grant::kAll ? 1 : std::min(window_ / 4, kEnoughForAFrame);
  const bool enough = granted_ == 0 || allowed >= granted_ + worth;
  if (grant == Grant::kWorthAFrame && !enough) return TakeByTime(allowed, fresh, now);
  coming_since_ = kNoDeadline;
  if (grant != Grant::kRepeat && !enough) return std::nullopt;
  return granted_ = std::max(granted_, allowed);
}

// A sender takes what an answer tells to have just arrived (LinkMeter): only what is fresh is told,
// or nothing new.
std::optional<uint64_t> InboundGroup::TakeByTime(uint64_t allowed, bool fresh, TimePoint now) {
  coming_since_ = std::min(coming_since_, now);
  if (now - coming_since_ < answer_every_) return std::nullopt;
  if (fresh) {
    coming_since_ = now;
    return granted_ = std::max(granted_, allowed);
  }
  if (now - repeated_at_ < answer_every_) return std::nullopt;
  repeated_at_ = now;
  return granted_;
}

}  // namespace tandem
