// Who connects to the loop (io_loop.h), until it has said which group it belongs to.
#include <sys/epoll.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/status.h"
#include "spdlog/spdlog.h"
#include "transfer/framed/io_loop.h"

namespace tandem {
namespace {

// After a medium had no room for another connection.
constexpr std::chrono::milliseconds kAcceptPause{200};
// One in so many connections may be one that has said nothing yet.
constexpr int kShareOfSilent = 4;
// A sender that waits hears so often that something is coming.
constexpr int kAnswersInTime = 5;

}  // namespace

void IoLoop::Accept() {
  while (true) {
    absl::StatusOr<std::unique_ptr<ByteChannel>> channel = medium_.Accept();
    if (absl::IsPermissionDenied(channel.status())) {
      CountStranger(channel.status());
      continue;
    }
    if (!channel.ok()) return PauseAccepting(channel.status());
    if (*channel == nullptr) return;
    if (!MakeRoomForOneMore()) {
      CountRefusedForRoom();
      continue;
    }
    const uint64_t id = next_id_++;
    slots_[id].connection = std::make_unique<InboundConnection>(
        *std::move(channel), receiver_, payloads_.in,
        [this, id](const FrameHeader& hello) { return JoinGroup(id, hello); }, read_ahead_,
        counters_, Timeouts{.connect = options_.connect_timeout, .stall = options_.stall_timeout});
    ++num_inbound_;
    Advance(id);
  }
}

bool IoLoop::IsSilent(uint64_t id) const {
  const auto place = slots_.find(id);
  return place != slots_.end() && place->second.peer == nullptr && place->second.group_id == 0;
}

std::vector<uint64_t> IoLoop::Silent() const {
  std::vector<uint64_t> silent;
  for (const auto& [id, slot] : slots_) {
    if (IsSilent(id)) silent.push_back(id);
  }
  std::ranges::sort(silent);
  return silent;
}

// Whoever connects and says nothing takes no place from those who do: the oldest gives way, read
// once more before, since it may have said hello while others came.
bool IoLoop::MakeRoomForOneMore() {
  const auto most = static_cast<size_t>(std::max(options_.max_connections / kShareOfSilent, 1));
  const std::vector<uint64_t> silent = Silent();
  size_t left = silent.size();
  for (const uint64_t id : silent) {
    if (left < most && num_inbound_ < options_.max_connections) break;
    Advance(id);
    if (IsSilent(id)) CloseStranger(id, Unavailable("it has said nothing, and others came"));
    --left;
  }
  return num_inbound_ < options_.max_connections;
}

void IoLoop::CloseStranger(uint64_t id, const absl::Status& status) {
  CountStranger(status);
  const auto node = slots_.extract(id);
  --num_inbound_;
  node.mapped().connection->OnClosed(status);
}

// They try again: a line for each would fill the disk. Likewise below.
void IoLoop::CountStranger(const absl::Status& status) {
  ++counters_.closed;
  if (const uint64_t so_far = ++counters_.strangers; std::has_single_bit(so_far)) {
    spdlog::warn("transfer connection refused strangers_so_far={} reason=\"{}\"", so_far,
                 std::string(status.message()));
  }
}

void IoLoop::CountRefusedForRoom() {
  ++counters_.closed;
  if (!std::has_single_bit(++refused_for_room_)) return;
  spdlog::warn("transfer connection refused so_far={}: there are {} already", refused_for_room_,
               num_inbound_);
}

// The connection stays in the backlog and the listener readable: look again after a pause.
void IoLoop::PauseAccepting(const absl::Status& status) {
  spdlog::warn("transfer cannot accept reason=\"{}\"", std::string(status.message()));
  accept_again_ = std::chrono::steady_clock::now() + kAcceptPause;
  epoll_ctl(sockets_.epoll.get(), EPOLL_CTL_DEL, medium_.listener_fd(), nullptr);
}

void IoLoop::ResumeAccepting() {
  accept_again_ = kNoDeadline;
  Watch(medium_.listener_fd(), kListenerId);
}

absl::StatusOr<InboundGroup*> IoLoop::JoinGroup(uint64_t id, const FrameHeader& hello) {
  auto& group = inbound_groups_[hello.stream];
  if (group == nullptr) {
    group = std::make_unique<InboundGroup>(hello.block, options_.credit_window_bytes,
                                           options_.answer_timeout / kAnswersInTime);
  }
  RETURN_IF_ERROR(group->Join(hello, id));
  slots_.at(id).group_id = hello.stream;
  return group.get();
}

}  // namespace tandem
