#include "tests/support/frame_proxy.h"

#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "fmt/format.h"
#include "tests/support/transport_probe.h"

namespace tandem {
namespace {

constexpr size_t kReadBytes = 256 << 10;
// What one side may have waiting before the other is read no further.
constexpr size_t kMaxOutBytes = 1 << 20;

FrameAction Pass(const ObservedFrame&) { return {}; }

absl::StatusOr<UniqueFd> ConnectToTarget(const std::string& target) {
  if (target.empty()) return FailedPrecondition("the proxy has no target yet");
  ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(target));
  ASSIGN_OR_RETURN(const auto addresses, Resolve(host_port, NameLookup::kNumericOnly));
  return StartConnect(addresses.front());
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrameProxy>> FrameProxy::Open() {
  ASSIGN_OR_RETURN(UniqueFd listener, Listen("127.0.0.1", 0));
  UniqueFd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) return Unavailable("eventfd: {}", ErrnoMessage(errno));
  return std::unique_ptr<FrameProxy>(new FrameProxy(std::move(listener), std::move(wake)));
}

FrameProxy::FrameProxy(UniqueFd listener, UniqueFd wake)
    : listener_(std::move(listener)),
      wake_(std::move(wake)),
      address_(fmt::format("127.0.0.1:{}", LocalPort(listener_))),
      hook_(Pass),
      thread_([this] { Run(); }) {}

FrameProxy::~FrameProxy() {
  Give([](Orders& orders) { orders.stop = true; });
  thread_.join();
}

void FrameProxy::Give(void (*order)(Orders&)) {
  {
    absl::MutexLock lock(&mutex_);
    order(orders_);
  }
  Wake();
}

void FrameProxy::Wake() {
  const uint64_t one = 1;
  const ssize_t count = write(wake_.get(), &one, sizeof(one));
  TANDEM_CHECK(count == sizeof(one) || errno == EAGAIN, "write to an eventfd");
}

void FrameProxy::SetTarget(std::string_view target) {
  absl::MutexLock lock(&mutex_);
  orders_.target = target;
}

void FrameProxy::SetHook(FrameHook hook) {
  {
    absl::MutexLock lock(&mutex_);
    orders_.hook = std::move(hook);
  }
  Wake();
}

void FrameProxy::Release() {
  Give([](Orders& orders) { ++orders.releases; });
}

void FrameProxy::Heal() {
  Give([](Orders& orders) {
    orders.hook = Pass;
    ++orders.releases;
  });
}

void FrameProxy::CutConnections() {
  Give([](Orders& orders) { ++orders.cuts; });
}

ProxyCounts FrameProxy::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

bool FrameProxy::Await(uint64_t ProxyCounts::*count, uint64_t at_least) const {
  absl::MutexLock lock(&mutex_);
  auto reached = [&] {
    mutex_.AssertReaderHeld();
    return counts_.*count >= at_least;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
}

bool FrameProxy::AwaitClosedBySender(uint64_t connection) const {
  absl::MutexLock lock(&mutex_);
  auto closed = [&] {
    mutex_.AssertReaderHeld();
    return closed_by_sender_.contains(connection);
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&closed), kPatience);
}

void FrameProxy::Run() {
  while (!obeyed_.stop) {
    std::vector<pollfd> watched = Watched();
    if (poll(watched.data(), watched.size(), -1) < 0) {
      TANDEM_CHECK(errno == EINTR, "poll");
      continue;
    }
    Obey();
    // Watched() lists the sides in this order; pairs that are accepted below come next time.
    for (size_t i = 2; i < watched.size(); ++i) {
      Serve(*pairs_[(i - 2) / 2], i % 2, watched[i].revents);
    }
    if (watched[1].revents != 0) AcceptAll();
    std::erase_if(pairs_, [](const auto& pair) { return pair->over(); });
  }
}

void FrameProxy::Obey() {
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t count = read(wake_.get(), &ignored, sizeof(ignored));
  const Orders before = std::exchange(obeyed_, {});
  {
    absl::MutexLock lock(&mutex_);
    obeyed_ = orders_;
  }
  if (obeyed_.hook) hook_ = obeyed_.hook;
  const auto ask = [this](const ObservedFrame& frame) { return Ask(frame); };
  for (const auto& pair : pairs_) {
    if (obeyed_.cuts != before.cuts) pair->cut = true;
    for (size_t side = 0; side < 2; ++side) {
      if (obeyed_.releases != before.releases && !pair->cut) {
        pair->faults[side].Release(ask, pair->sides[1 - side].out);
      }
      AfterFaults(*pair, side);
    }
  }
}

std::vector<pollfd> FrameProxy::Watched() const {
  std::vector<pollfd> watched = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  for (const auto& pair : pairs_) {
    for (size_t i = 0; i < 2; ++i) {
      const Side& side = pair->sides[i];
      const bool reads =
          pair->cut || (!pair->faults[i].held() && pair->sides[1 - i].out.size() < kMaxOutBytes);
      const bool watches_read = reads && !side.read_over;
      const bool watches_write = !side.out.empty() && !side.write_over;
      const auto events =
          static_cast<short>((watches_read ? POLLIN : 0) | (watches_write ? POLLOUT : 0));
      // poll tells of errors unasked: one that is not waited for shall not wake it again and again.
      watched.push_back({events == 0 ? -1 : side.fd.get(), events, 0});
    }
  }
  return watched;
}

void FrameProxy::AcceptAll() {
  while (true) {
    sockaddr_in from{};
    socklen_t from_size = sizeof(from);
    UniqueFd accepted(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &from_size,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted.valid()) return;
    SetStreamOptions(accepted);
    std::string target;
    {
      absl::MutexLock lock(&mutex_);
      target = orders_.target;
    }
    auto connected = ConnectToTarget(target);
    const uint16_t port = ntohs(from.sin_port);
    absl::MutexLock lock(&mutex_);
    if (!connected.ok()) {
      ++counts_.unreached;
      continue;
    }
    const uint64_t number = counts_.connections++;
    pairs_.push_back(std::make_unique<Pair>(
        Pair{.number = number,
             .sides = {{.fd = std::move(accepted)}, {.fd = *std::move(connected)}},
             .faults = {FrameFaults(FrameDirection::kToReceiver, number, port),
                        FrameFaults(FrameDirection::kToSender, number, port)}}));
  }
}

void FrameProxy::Serve(Pair& pair, size_t side, short events) {
  if ((events & POLLOUT) != 0) WriteSide(pair, side);
  if ((events & ~POLLOUT) != 0) ReadSide(pair, side);
}

void FrameProxy::ReadSide(Pair& pair, size_t side) {
  Side& from = pair.sides[side];
  if (from.read_over) return;
  read_buffer_.resize(kReadBytes);
  const ssize_t count = recv(from.fd.get(), read_buffer_.data(), read_buffer_.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    from.read_over = true;
    if (count < 0) from.write_over = true;
    pair.cut = true;
    if (side == 0) {
      absl::MutexLock lock(&mutex_);
      closed_by_sender_.insert(pair.number);
    }
  } else if (!pair.cut) {
    FrameFaults& faults = pair.faults[side];
    const bool spoke_frames = !faults.not_frames();
    faults.Feed(
        std::string_view(read_buffer_).substr(0, static_cast<size_t>(count)),
        [this](const ObservedFrame& frame) { return Ask(frame); }, pair.sides[1 - side].out);
    if (spoke_frames && faults.not_frames()) {
      absl::MutexLock lock(&mutex_);
      ++counts_.not_frames;
    }
  }
  AfterFaults(pair, side);
}

// Writes at once what can be written, and ends a connection that was cut once all of it has gone.
void FrameProxy::AfterFaults(Pair& pair, size_t side) {
  if (pair.faults[side].cut()) pair.cut = true;
  WriteSide(pair, 1 - side);
  if (pair.cut) WriteSide(pair, side);
}

void FrameProxy::WriteSide(Pair& pair, size_t side) {
  Side& to = pair.sides[side];
  size_t written = 0;
  while (written < to.out.size() && !to.write_over) {
    const std::string_view rest = std::string_view(to.out).substr(written);
    const ssize_t count = send(to.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) {
      to.write_over = true;
      pair.cut = true;
      break;
    }
    written += static_cast<size_t>(count);
  }
  to.out.erase(0, written);
  if (!to.out.empty()) return;
  if (!pair.cut || to.write_over) return;
  // What the peer still sends is read until its own end comes: closed any earlier, the system would
  // reset the connection, and with it what the peer has not read yet.
  shutdown(to.fd.get(), SHUT_WR);
  to.write_over = true;
}

FrameAction FrameProxy::Ask(const ObservedFrame& frame) {
  const FrameAction action = hook_(frame);
  using Kind = FrameAction::Kind;
  absl::MutexLock lock(&mutex_);
  ++counts_.frames;
  switch (action.kind) {
    case Kind::kPass:
      break;
    case Kind::kDrop:
      ++counts_.dropped;
      break;
    case Kind::kDuplicate:
      ++counts_.duplicated;
      break;
    case Kind::kSwap:
      ++counts_.swapped;
      break;
    case Kind::kFlipHeader:
    case Kind::kFlipPayload:
      ++counts_.flipped;
      break;
    case Kind::kCutBefore:
    case Kind::kCutInside:
    case Kind::kCutAfter:
      ++counts_.cut;
      break;
    case Kind::kHold:
    case Kind::kHoldInside:
      ++counts_.held;
      break;
  }
  return action;
}

}  // namespace tandem
