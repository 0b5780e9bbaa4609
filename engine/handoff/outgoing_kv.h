#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/handoff/states.h"
#include "engine/request.h"
#include "transfer/transport.h"

namespace tandem {

// The sending half of a hand-off, as far as one request goes. States: engine/handoff/states.h.
// Thread: engine.
struct OutgoingKv {
  HandoffTarget target;
  StreamHandle stream;  // the latest of its streams; null before the first
  SendState state = SendState::kClosed;
  absl::Status error;        // of the first call that failed; acted upon after the step
  uint64_t attempt = 0;      // names the latest of its streams among all of the sender's
  int32_t reopened = 0;      // times, or about to be
  TimePoint reopen_at{};     // while it is lost
  int32_t ready_blocks = 0;  // of the prompt, whose KV of all layers is in the pool
  bool computed = false;     // the prompt is, to its end
  std::optional<int32_t> posted_with_commit;  // the first of the blocks that are
  uint64_t frames = 0;                        // posted, on all of its streams
  TimePoint first_posted{};
  TimePoint first_token{};  // when it was sampled: what comes after is not hidden by computing
};

}  // namespace tandem
