#include "router/ledger/worker_ledger.h"

#include <algorithm>

namespace tandem {
namespace {

// Combines two demands field by field.
template <typename Combine>
WorkerDemand Combined(const WorkerDemand& a, const WorkerDemand& b, const Combine& combine) {
  return {.decoding = combine(a.decoding, b.decoding),
          .waiting = combine(a.waiting, b.waiting),
          .waiting_prompt_tokens = combine(a.waiting_prompt_tokens, b.waiting_prompt_tokens),
          .decode_context_tokens = combine(a.decode_context_tokens, b.decode_context_tokens),
          .expected_decode_tokens = combine(a.expected_decode_tokens, b.expected_decode_tokens)};
}

WorkerDemand Reported(const v1::WorkerLoad& load) {
  return {.decoding = int64_t{load.running()} + std::max(0, load.handoffs().reservations()),
          .waiting = load.waiting(),
          .waiting_prompt_tokens = load.waiting_prompt_tokens(),
          .decode_context_tokens = static_cast<double>(load.decode_context_tokens()),
          .expected_decode_tokens = static_cast<double>(load.expected_decode_tokens())};
}

}  // namespace

WorkerLedger::Position WorkerLedger::Add(const PartInFlight& part) {
  StartIfIdle(part.sent);
  own_ += WorkerDemand::Of(part);
  arrivals_.Add(part, part.sent);
  usual_arrivals_.Add(part, part.sent);
  return parts_.insert(parts_.end(), part);
}

void WorkerLedger::Send(Position position, TimePoint now) {
  StartIfIdle(now);
  position->stage = PartInFlight::Stage::kWaiting;
  position->sent = now;
  parts_.splice(parts_.end(), parts_, position);
}

void WorkerLedger::AddTokens(Position position, int32_t tokens, TimePoint now) {
  const bool is_first = position->stage == PartInFlight::Stage::kWaiting;
  own_ -= WorkerDemand::Of(*position);
  position->emitted_tokens += tokens;
  position->stage = position->kind == RequestPart::Kind::kPrefill ? PartInFlight::Stage::kMoving
                                                                  : PartInFlight::Stage::kDecoding;
  own_ += WorkerDemand::Of(*position);
  if (is_first) TakeRest(*position, now);
  FollowSteps(*position, tokens, now);
  latest_event_ = now;
}

void WorkerLedger::EndSequence(Position position) {
  own_ -= WorkerDemand::Of(*position);
  position->live_sequences = std::max(0, position->live_sequences - 1);
  own_ += WorkerDemand::Of(*position);
}

void WorkerLedger::Remove(Position position) {
  own_ -= WorkerDemand::Of(*position);
  parts_.erase(position);
  // Adding and subtracting fractions leaves rounding errors.
  if (parts_.empty()) own_ = {};
}

void WorkerLedger::OnReport(const WorkerView& worker) {
  if (worker.last_report == latest_report_) return;
  latest_report_ = worker.last_report;
  max_step_tokens_ = worker.info->max_step_tokens;
  const WorkerDemand excess = Combined(Reported(*worker.load), own_, [](auto reported, auto own) {
    return std::max(decltype(own){0}, reported - own);
  });
  others_ = Combined(excess, latest_excess_, [](auto a, auto b) { return std::min(a, b); });
  latest_excess_ = excess;
}

void WorkerLedger::StartIfIdle(TimePoint now) {
  const bool is_idle = own_.decoding == 0 && own_.waiting == 0;
  if (is_idle) step_began_ = now;
}

// Counts the rest of a prompt whose first token has come as computed. Where nothing else decodes,
// that token shows that a step has ended, but not how full it was: earlier steps, and what the
// cache had, may be other than expected.
void WorkerLedger::TakeRest(PartInFlight& part, TimePoint now) {
  const int32_t rest = part.uncomputed_tokens();
  taken_tokens_ += rest;
  part.computed_tokens += rest;
  const bool is_alone = own_.decoding == WorkerDemand::Of(part).decoding;
  if (rest > 0 && is_alone) BeginStep(now);
}

// A sequence gets one token per step, so each further token shows that a step has ended.
void WorkerLedger::FollowSteps(PartInFlight& part, int32_t tokens, TimePoint now) {
  if (part.latest_step != step_) part.step_tokens = 0;
  part.step_tokens += tokens;
  const int64_t in_a_step = std::max(part.live_sequences, 1);
  for (; part.step_tokens > in_a_step; part.step_tokens -= in_a_step) EndStep(now);
  part.latest_step = step_;
}

void WorkerLedger::EndStep(TimePoint now) {
  int64_t budget = own_.waiting > 0 ? max_step_tokens_ - own_.decoding - taken_tokens_ : 0;
  for (PartInFlight& part : parts_) {
    if (budget <= 0) break;
    // A prompt that came during the step is computed in the next one.
    if (part.stage != PartInFlight::Stage::kWaiting || part.sent > step_began_) continue;
    const int32_t uncomputed = part.uncomputed_tokens();
    // The first token of a prompt that is computed should have come with the step before: the
    // prompt has no place, no room for its KV, or less of it was cached than was assumed. Nothing
    // is known of the prompts behind it.
    if (uncomputed == 0) break;
    const auto computed = static_cast<int32_t>(std::min<int64_t>(budget, uncomputed));
    part.computed_tokens += computed;
    budget -= computed;
  }
  BeginStep(now);
}

void WorkerLedger::BeginStep(TimePoint now) {
  ++step_;
  step_began_ = now;
  taken_tokens_ = 0;
}

}  // namespace tandem
