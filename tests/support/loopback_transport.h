#pragma once

#include <memory>

#include "transfer/framed/framed_transport.h"

namespace tandem {

// Transports of one process that reach one another by name, over socket pairs: for tests of what
// stands above a transport, and for roles that share a process.
// Thread-safe.
class LoopbackNetwork {
 public:
  LoopbackNetwork();
  ~LoopbackNetwork();  // after all of its media
  // A medium whose address() is new in this network.
  std::unique_ptr<Medium> NewMedium();
  // A framed transport over a new medium. `receiver` may be null.
  std::unique_ptr<Transport> NewTransport(FrameReceiver* receiver,
                                          const FramedOptions& options = {});

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace tandem
