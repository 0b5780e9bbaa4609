#pragma once

#include <memory>

#include "transfer/transport.h"

namespace tandem {

// Transports of one process that reach one another by name, with a thread each: for tests of what
// stands above a transport, and for roles that share a process.
class LoopbackNetwork {
 public:
  LoopbackNetwork();
  ~LoopbackNetwork();  // after all of its transports
  // `receiver` may be null. address() is "loopback:" and a number.
  std::unique_ptr<Transport> NewTransport(FrameReceiver* receiver);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tandem
