#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace tandem {

// What the loop watches of an NCCL connection: its socket, and a timer while there is something of
// which no descriptor tells (a communicator that is being made, an operation of the device).
// A timer rather than a function of the host on the stream: an aborted stream may never come to
// that, or come to it when nobody is left, and the library's own errors have to be asked for.
// Thread: the loop's.
class NcclWatch {
 public:
  // How often it ticks: about as long as 8 MiB take over NVLink, and a few percent of a core.
  static constexpr std::chrono::microseconds kTick{100};

  // RESOURCE_EXHAUSTED when the process has no descriptor left. `socket` outlives the watch.
  static absl::StatusOr<NcclWatch> Open(int socket);

  // Readable when one of what it watches is.
  int fd() const { return epoll_.get(); }

  // Of the socket: what comes and room for more. Without input, that the peer has gone.
  void WatchSocket(bool input, bool output);
  void Tick(bool on);
  // To be called after each event: takes the ticks. Whether the peer has gone, while the socket is
  // not watched for input.
  bool TakeEvents();

 private:
  NcclWatch(int socket, UniqueFd epoll, UniqueFd timer)
      : socket_(socket), epoll_(std::move(epoll)), timer_(std::move(timer)) {}

  int socket_;
  UniqueFd epoll_;
  UniqueFd timer_;
  uint32_t interest_ = 0;
  bool ticking_ = false;
};

}  // namespace tandem
