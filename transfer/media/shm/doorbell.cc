#include "transfer/media/shm/doorbell.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/status.h"

namespace tandem {
namespace {

absl::StatusOr<UniqueFd> Checked(UniqueFd descriptor, const char* call) {
  if (descriptor.valid()) return descriptor;
  return ResourceExhausted("no descriptor for shared memory: {}: {}", call, ErrnoMessage(errno));
}

void RingOnce(const UniqueFd& descriptor) {
  const uint64_t once = 1;
  // The write fails only when the counter is full, and then the doorbell has been rung already.
  [[maybe_unused]] const ssize_t written = write(descriptor.get(), &once, sizeof(once));
}

}  // namespace

absl::Status Doorbell::NeverBlock() {
  for (const UniqueFd* end : {&own_, &peers_}) {
    if (fcntl(end->get(), F_SETFL, O_NONBLOCK) != 0) {
      return FailedPrecondition("the peer's doorbell is none: {}", ErrnoMessage(errno));
    }
  }
  return absl::OkStatus();
}

void Doorbell::Ring() { RingOnce(peers_); }
void Doorbell::RingOwn() { RingOnce(own_); }

absl::StatusOr<uint64_t> Doorbell::Take() {
  uint64_t count = 0;
  const ssize_t read_bytes = read(own_.get(), &count, sizeof(count));
  if (read_bytes == sizeof(count)) return count;
  if (read_bytes < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  return FailedPrecondition("the peer's doorbell is none: {}",
                            read_bytes < 0 ? ErrnoMessage(errno) : "another kind of file");
}

absl::StatusOr<UniqueFd> NewDoorbell() {
  return Checked(UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), "eventfd");
}

absl::StatusOr<UniqueFd> NewWatch(int descriptor) {
  ASSIGN_OR_RETURN(UniqueFd watch, Checked(UniqueFd(epoll_create1(EPOLL_CLOEXEC)), "epoll_create"));
  RETURN_IF_ERROR(AddToWatch(watch, descriptor));
  return watch;
}

absl::Status AddToWatch(const UniqueFd& watch, int descriptor) {
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(watch.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return absl::OkStatus();
  return ResourceExhausted("cannot watch a descriptor: {}", ErrnoMessage(errno));
}

}  // namespace tandem
