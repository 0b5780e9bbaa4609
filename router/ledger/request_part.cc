#include "router/ledger/request_part.h"

#include <algorithm>

namespace tandem {
namespace {

// An output that is longer than expected is expected to go on for this share of what was expected.
constexpr double kOverrun = 0.125;

double EmittedByEach(const PartInFlight& part) {
  return static_cast<double>(part.emitted_tokens) / std::max(part.sequences, 1);
}

}  // namespace

int32_t PartInFlight::uncomputed_tokens() const {
  if (kind == Kind::kDecode) return 0;
  return std::max(0, prompt_tokens - cached_tokens - computed_tokens);
}

double PartInFlight::context_tokens() const { return prompt_tokens + EmittedByEach(*this); }

double PartInFlight::remaining_tokens() const {
  const double emitted = EmittedByEach(*this);
  const double left = std::max(output_tokens - emitted, kOverrun * output_tokens);
  return std::max(1.0, std::min(left, most_output_tokens - emitted));
}

WorkerDemand WorkerDemand::Of(const PartInFlight& part) {
  WorkerDemand demand;
  const bool has_prompt = part.kind != RequestPart::Kind::kDecode;
  if (part.stage == PartInFlight::Stage::kMoving) return demand;
  const bool decodes = part.stage == PartInFlight::Stage::kDecoding || !has_prompt;
  if (!decodes) {
    demand.waiting = part.live_sequences;
    demand.waiting_prompt_tokens = part.prompt_tokens - part.cached_tokens;
    return demand;
  }
  demand.decoding = part.live_sequences;
  demand.decode_context_tokens = part.live_sequences * part.context_tokens();
  demand.expected_decode_tokens = part.live_sequences * part.remaining_tokens();
  return demand;
}

WorkerDemand& WorkerDemand::operator+=(const WorkerDemand& other) {
  decoding += other.decoding;
  waiting += other.waiting;
  waiting_prompt_tokens += other.waiting_prompt_tokens;
  decode_context_tokens += other.decode_context_tokens;
  expected_decode_tokens += other.expected_decode_tokens;
  return *this;
}

WorkerDemand& WorkerDemand::operator-=(const WorkerDemand& other) {
  decoding -= other.decoding;
  waiting -= other.waiting;
  waiting_prompt_tokens -= other.waiting_prompt_tokens;
  decode_context_tokens -= other.decode_context_tokens;
  expected_decode_tokens -= other.expected_decode_tokens;
  return *this;
}

}  // namespace tandem
