#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/op_args.h"

namespace tandem {

// The receiving half of a hand-off, as far as one request goes: what the request brings from its
// prefill worker. The reservation itself is in the KvReceiver.
// Thread: engine.
struct IncomingKv {
  std::optional<ReservationId> awaiting;   // until its KV is complete and the sequence owns it
  std::vector<SampledToken> first_tokens;  // one per choice, or one for all beams
  uint64_t hidden_bytes = 0;               // KV that had landed when the request arrived
  uint64_t received_bytes = 0;             // KV that had landed when it was complete
  std::optional<DType> sent_dtype;         // when the KV came in a narrower dtype than the pool's
};

}  // namespace tandem
