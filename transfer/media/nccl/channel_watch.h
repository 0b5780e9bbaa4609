#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace tandem {

// The events of an NCCL connection: those of its socket, and ticks of a timer while something is
// under way that has no descriptor (a communicator that is being made, an operation of the device).
// A host function on the stream would not do instead of the timer: an aborted stream may never get
// to it, and NCCL has to be asked for its own errors. Thread: the loop's.
class NcclWatch {
 public:
  // The time between two ticks: about that of 8 MiB over NVLink. Ticking costs a few percent of a
  // core.
  static constexpr std::chrono::microseconds kTick{100};

  // Watches `socket`, which outlives the watch. RESOURCE_EXHAUSTED when the process has no
  // descriptor left.
  static absl::StatusOr<NcclWatch> Open(int socket);

  // The descriptor that is readable while there is an event.
  int fd() const { return epoll_.get(); }

  // Chooses the events of the socket: input and room for output. Without `input` the watch still
  // notices that the peer has gone.
  void WatchSocket(bool input, bool output);
  void Tick(bool on);
  // Consumes the ticks; to be called after each event. While the socket is not watched for input,
  // returns whether the peer has gone.
  bool TakeEvents();

 private:
  NcclWatch(int socket, UniqueFd epoll, UniqueFd timer, uint32_t interest)
      : socket_(socket), epoll_(std::move(epoll)), timer_(std::move(timer)), interest_(interest) {}

  int socket_;
  UniqueFd epoll_;
  UniqueFd timer_;
  uint32_t interest_;  // the events of the socket that are watched
  bool ticking_ = false;
};

}  // namespace tandem
