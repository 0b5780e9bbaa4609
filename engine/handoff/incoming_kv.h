#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/op_args.h"

namespace tandem {

// The state of one request in the receiving half of a hand-off: what the request brings from its
// prefill worker. The reservation itself is in the KvReceiver.
// Thread: engine.
struct IncomingKv {
  std::optional<ReservationId> awaiting;   // set until the KV is complete and the sequence owns it
  std::vector<SampledToken> first_tokens;  // one per choice, or a single one for a beam search
  uint64_t hidden_bytes = 0;               // KV that had landed when the request arrived
  uint64_t received_bytes = 0;             // KV that had landed when the transfer was complete
  std::optional<DType> sent_dtype;  // set when the KV came in a narrower dtype than the pool's
};

}  // namespace tandem
