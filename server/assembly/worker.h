#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// The composition root of a worker process: backend, weights, KV pool, engine, transport, services,
// registration, made in this order and ended in reverse.
class Worker {
 public:
  // Returns once it listens; registration goes on in the background. Errors name the file, flag or
  // address at fault.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options);
  ~Worker();

  // host:port that routers call.
  const std::string& address() const;
  // Where KV arrives, endpoints as the transport gives them; empty for a unified worker.
  std::string data_address() const;
  // Returns true once every router knows this worker, false once it drains.
  bool WaitUntilKnown();
  // Why the worker can serve nothing any more, or OK. It has asked for its own end, with SIGTERM.
  absl::Status failure() const;
  // Leaves the routers, lets requests end until `deadline`, fails the rest, and stops listening.
  void Drain(TimePoint deadline);

 private:
  struct Parts;
  explicit Worker(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
