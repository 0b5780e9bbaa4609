#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// The composition root of a worker process: backend, weights, KV pool, engine, transport, services
// and registration, which are created in this order and destroyed in reverse.
class Worker {
 public:
  // Returns once the worker listens; registration goes on in the background. Errors name the file,
  // flag or address at fault.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options);
  ~Worker();

  // The address that routers call, as host:port.
  const std::string& address() const;
  // The address that KV is sent to: endpoints in the form of the transport; empty for a unified
  // worker.
  std::string data_address() const;
  // Waits until a router of each --router value knows this worker, and returns true; false once it
  // drains.
  bool WaitUntilKnown();
  // Why the worker can no longer serve, or OK. It has then sent SIGTERM to its own process.
  absl::Status failure() const;
  // Announces to the routers that it leaves, lets requests end until `deadline`, fails the rest,
  // and stops listening.
  void Drain(TimePoint deadline);

 private:
  struct Parts;
  explicit Worker(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
