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

// The state of one request in the sending half of a hand-off. The states are in
// engine/handoff/states.h.
// Thread: engine.
struct OutgoingKv {
  HandoffTarget target;
  StreamHandle stream;  // the request's latest stream; null before the first
  SendState state = SendState::kClosed;
  absl::Status error;        // the first error of a call; it ends the request after the step
  uint64_t attempt = 0;      // number of the latest stream among all streams of the sender
  int32_t reopened = 0;      // how often the stream was reopened, including a reopening that is due
  TimePoint reopen_at{};     // when a lost stream is to be reopened
  int32_t ready_blocks = 0;  // blocks of the prompt whose KV of all layers is in the pool
  bool computed = false;     // the whole prompt is computed
  std::optional<int32_t> posted_with_commit;  // the first block that is kept for the commit
  // The KV is not encoded: there is no encoder, or encoded KV did not arrive whole.
  bool as_it_is = false;
  EncodedStream::Opened encoded;  // the latest stream, where its KV may be encoded
  std::shared_ptr<PostedKv> posted = std::make_shared<PostedKv>();
  std::optional<TimePoint> first_posted;
  TimePoint first_token{};  // time of sampling it; later transfers are not hidden by computation
};

}  // namespace tandem
