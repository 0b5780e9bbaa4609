#include "router/ledger/worker_ledger.h"

#include <algorithm>

namespace tandem {
namespace {

// Field by field.
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
  own_ += WorkerDemand::Of(part);
  arrivals_.Add(part, part.sent);
  usual_arrivals_.Add(part, part.sent);
  return parts_.insert(parts_.end(), part);
}

void WorkerLedger::Send(Position position, TimePoint now) {
  position->stage = PartInFlight::Stage::kWaiting;
  position->sent = now;
  parts_.splice(parts_.end(), parts_, position);
}

void WorkerLedger::AddTokens(Position position, int32_t tokens, TimePoint now) {
  own_ -= WorkerDemand::Of(*position);
  position->emitted_tokens += tokens;
  position->stage = position->kind == RequestPart::Kind::kPrefill ? PartInFlight::Stage::kMoving
                                                                  : PartInFlight::Stage::kDecoding;
  own_ += WorkerDemand::Of(*position);
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
  // Sums of fractions leave a rest.
  if (parts_.empty()) own_ = {};
}

void WorkerLedger::OnReport(const WorkerView& worker) {
  if (worker.last_report == latest_report_) return;
  latest_report_ = worker.last_report;
  const WorkerDemand excess = Combined(Reported(*worker.load), own_, [](auto reported, auto own) {
    return std::max(decltype(own){0}, reported - own);
  });
  others_ = Combined(excess, latest_excess_, [](auto a, auto b) { return std::min(a, b); });
  latest_excess_ = excess;
}

}  // namespace tandem
