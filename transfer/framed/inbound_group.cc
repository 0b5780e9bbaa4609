#include "transfer/framed/inbound_group.h"

#include <algorithm>

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

std::optional<uint64_t> InboundGroup::TakeGrant(Grant grant) {
  const uint64_t allowed = consumed_ + window_;
  if (grant == Grant::kRepeat) return granted_ = std::max(granted_, allowed);
  const uint64_t worth = grant == Grant::kAll ? 1 : std::min(window_ / 4, kEnoughForAFrame);
  if (granted_ != 0 && allowed < granted_ + worth) return std::nullopt;
  granted_ = allowed;
  return allowed;
}

}  // namespace tandem
