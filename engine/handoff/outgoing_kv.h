#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/handoff/encoded_stream.h"
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
  absl::Status error;        // of the first call that failed; it ends the request after the step
  uint64_t attempt = 0;      // number of its latest stream among all streams of the sender
  int32_t reopened = 0;      // how often it was opened again, a pending time included
  TimePoint reopen_at{};     // while it is lost
  int32_t ready_blocks = 0;  // blocks of the prompt whose KV of all layers is in the pool
  bool computed = false;     // the whole prompt is computed
  std::optional<int32_t> posted_with_commit;  // the first block that is kept for the commit
  // Its KV is not encoded: there is no encoder, or what was encoded did not arrive whole.
  bool as_it_is = false;
  EncodedStream::Opened encoded;  // of the latest stream, where its KV may be encoded
  std::shared_ptr<PostedKv> posted = std::make_shared<PostedKv>();
  std::optional<TimePoint> first_posted;
  TimePoint first_token{};  // sampled; later transfer time is not hidden by computation
};

}  // namespace tandem
