#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "server/assembly/router_process_options.h"

namespace tandem {

// The composition root of a router process: model, admission, routing policy, cluster, router and
// ports, which are created in this order and destroyed in reverse.
class RouterProcess {
 public:
  // Returns once the router listens; workers and clients may connect from then on. Errors name the
  // file, flag or address at fault.
  static absl::StatusOr<std::unique_ptr<RouterProcess>> Start(RouterProcessOptions options);
  ~RouterProcess();

  std::string address() const;  // address of the gRPC port, host:port
  const std::string& model() const;
  // Refuses new requests, lets those in flight end until `deadline`, fails the rest, and stops
  // listening. Called once.
  void Drain(TimePoint deadline);

 private:
  struct Parts;
  explicit RouterProcess(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
