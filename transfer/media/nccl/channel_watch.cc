#include "transfer/media/nccl/channel_watch.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

absl::Status Add(const UniqueFd& epoll, int descriptor) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return absl::OkStatus();
  return ResourceExhausted("cannot watch a descriptor: {}", ErrnoMessage(errno));
}

}  // namespace

absl::StatusOr<NcclWatch> NcclWatch::Open(int socket) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!epoll.valid() || !timer.valid()) {
    return ResourceExhausted("no descriptor for an NCCL connection: {}", ErrnoMessage(errno));
  }
  RETURN_IF_ERROR(Add(epoll, socket));
  RETURN_IF_ERROR(Add(epoll, timer.get()));
  return NcclWatch(socket, std::move(epoll), std::move(timer), EPOLLIN);
}

void NcclWatch::WatchSocket(bool input, bool output) {
  const uint32_t interest = (input ? EPOLLIN : EPOLLRDHUP) | (output ? EPOLLOUT : 0u);
  if (interest == interest_) return;
  interest_ = interest;
  epoll_event event{.events = interest, .data = {.fd = socket_}};
  TANDEM_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket_, &event) == 0,
               "epoll_ctl of a socket");
}

void NcclWatch::Tick(bool on) {
  if (on == ticking_) return;
  ticking_ = on;
  const timespec period = {.tv_nsec = on ? std::chrono::nanoseconds(kTick).count() : 0};
  const itimerspec ticks = {.it_interval = period, .it_value = period};
  TANDEM_CHECK(timerfd_settime(timer_.get(), 0, &ticks, nullptr) == 0, "timerfd_settime");
}

bool NcclWatch::TakeEvents() {
  uint64_t ticks = 0;
  // The read fails when the timer has not ticked, which does not matter here.
  [[maybe_unused]] const ssize_t count = read(timer_.get(), &ticks, sizeof(ticks));
  if ((interest_ & EPOLLIN) != 0) return false;
  std::array<epoll_event, 2> events;
  const int found = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < found; ++i) {
    const bool of_socket = events[i].data.fd == socket_;
    if (of_socket && (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) return true;
  }
  return false;
}

}  // namespace tandem
