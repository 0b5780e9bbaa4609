#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"

namespace tandem {

struct SupervisedWorker {
  std::string name;                    // "decode-0"
  std::vector<std::string> arguments;  // of `tandem`, all but --router
};

struct SupervisorOptions {
  std::vector<std::string> router_arguments;  // of `tandem`, all but --port
  uint16_t router_port = 0;                   // 0: a free one, kept when the router starts again
  std::vector<SupervisedWorker> workers;
  std::string model;      // for the lines that say ready
  std::string http_url;   // likewise; empty: HTTP is not served
  bool has_page = false;  // HTTP has one for browsers
  // Flags that clients need, with a space before each, for the same lines.
  std::string client_flags;
  Duration drain = std::chrono::seconds(30);
  int ready_fd = -1;  // of our own parent
};

// Runs a router and workers as child processes until SIGINT or SIGTERM. A child that dies is
// started again after a back-off; one that cannot even start ends it all. Ends in order: the router
// first, which lets its requests finish, then the workers. Nothing outlives this process: if it is
// killed, the kernel kills the children. Thread: the main one, before any other was started.
absl::Status RunSupervisor(const SupervisorOptions& options);

}  // namespace tandem
