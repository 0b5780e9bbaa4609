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
  std::string model;      // for the lines printed when all is ready
  std::string http_url;   // for the same lines; empty: HTTP is not served
  bool has_page = false;  // whether the HTTP port serves a page for browsers
  // Flags that clients need, each with a space before it, for the lines that are printed when all
  // is ready.
  std::string client_flags;
  Duration drain = std::chrono::seconds(30);
  int ready_fd = -1;  // the descriptor of --ready-fd; -1: none
};

// Runs a router and workers as child processes until SIGINT or SIGTERM. A child that dies is
// started again after a back-off; one that ends before it was ever ready ends the whole service
// with an error. The router is stopped first, so that its requests can finish, and then the
// workers. No child outlives this process: if it is killed, the kernel kills them. Thread: the main
// one, before any other was started.
absl::Status RunSupervisor(const SupervisorOptions& options);

}  // namespace tandem
