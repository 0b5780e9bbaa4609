#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transfer/framed/framed_options.h"
#include "transfer/media/medium.h"
#include "transfer/transport.h"

namespace tandem {

// Makes a transport that carries frames (docs/kv_wire_format.md) over any medium: one thread for
// all connections, writes gathered straight from the pool, payloads read straight into the place
// that the receiver names. A connection whose bytes are no frame is closed. `receiver` must outlive
// the transport. It is null on a worker that only sends: then every stream that comes is refused
// with FAILED_PRECONDITION. UNAVAILABLE when the process has no descriptor left; INVALID_ARGUMENT
// for impossible staging sizes, RESOURCE_EXHAUSTED when there is not enough page-locked memory.
absl::StatusOr<std::unique_ptr<Transport>> NewFramedTransport(const FramedOptions& options,
                                                              std::unique_ptr<Medium> medium,
                                                              FrameReceiver* receiver);

}  // namespace tandem
