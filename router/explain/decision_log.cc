#include "router/explain/decision_log.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "router/cluster/registration_check.h"

namespace tandem {

absl::Status ValidateExplain(const v1::ExplainRequest& request) {
  if (request.has_latest()) {
    const int32_t latest = request.latest();
    if (latest >= 1 && latest <= DecisionLog::kMaxLatest) return absl::OkStatus();
    return InvalidArgument("latest={} must be in [1, {}]", latest, DecisionLog::kMaxLatest);
  }
  if (request.request_id().empty()) {
    return InvalidArgument("request_id is empty: give the id of a request, or latest");
  }
  return CheckName("request_id", request.request_id());
}

DecisionLog::DecisionLog(std::string policy, PredictionBook& book, DecisionLogLimits limits)
    : policy_(std::move(policy)), book_(book), limits_(limits) {}

DecisionLog::Entry* DecisionLog::Find(const RequestSpec& spec) const {
  const auto found = by_number_.find(spec.sequence.request_id());
  return found == by_number_.end() ? nullptr : found->second;
}

DecisionLog::Entry& DecisionLog::EntryOf(const RequestSpec& spec, const RouteQuery& query) {
  if (Entry* const entry = Find(spec)) return *entry;
  entries_.push_back(std::make_unique<Entry>(
      Entry{.number = spec.sequence.request_id(),
            .record = {.request_id = spec.id,
                       .received = spec.received,
                       .wanted = query.wanted,
                       .prompt_tokens = query.prompt_tokens,
                       .max_tokens = query.context_tokens - query.prompt_tokens,
                       .sequences = query.sequences,
                       .slo = query.slo,
                       .decisions = {},
                       .left_out = 0,
                       .kv_quality = spec.sequence.kv_quality(),
                       .handoff = std::nullopt,
                       .end = std::nullopt,
                       .comparison = {}}}));
  Entry& entry = *entries_.back();
  by_number_[entry.number] = &entry;
  by_id_[spec.id] = &entry;
  kept_ = entries_.size();
  return entry;
}

void DecisionLog::Add(const RequestSpec& spec, const RouteQuery& query, DecisionCause cause,
                      const RouteDecision& route, TimePoint now) {
  ++decisions_;
  Entry& entry = EntryOf(spec, query);
  std::vector<Decision>& decisions = entry.record.decisions;
  if (decisions.size() == kMaxDecisions) {
    decisions.erase(decisions.begin() + 1);
    ++entry.record.left_out;
  }
  decisions.push_back({.at = now - spec.received,
                       .cause = cause,
                       .expected_output_tokens = query.expected_output_tokens,
                       .route = route,
                       .stated = book_.IntervalsFor(route)});
  CountBytes(entry);
}

std::optional<double> DecisionLog::TtftInterval(const ScoredPlacement& placement) const {
  const double interval = book_.IntervalsFor(placement)[static_cast<size_t>(PredictionTerm::kTtft)];
  return interval > 0 ? std::optional(interval) : std::nullopt;
}

std::optional<v1::Prediction> DecisionLog::PredictionFor(const RequestSpec& spec,
                                                         const v1::ChoiceFinish& finish) const {
  const Entry* const entry = Find(spec);
  if (entry == nullptr) return std::nullopt;
  const Decision& decision = DecisionThatTookEffect(entry->record, finish);
  return DecidesOn(decision, finish) ? PredictionOf(decision) : std::nullopt;
}

void DecisionLog::SetHandoff(const RequestSpec& spec, v1::KvHandoff handoff) {
  Entry* const entry = Find(spec);
  if (entry == nullptr) return;
  entry->record.handoff = std::move(handoff);
  CountBytes(*entry);
}

void DecisionLog::End(const RequestSpec& spec, RequestEnd end) {
  Entry* const entry = Find(spec);
  if (entry == nullptr) return;
  DecisionRecord& record = entry->record;
  record.end = std::move(end);
  const Decision& decision = record.end->finish
                                 ? DecisionThatTookEffect(record, *record.end->finish)
                                 : record.decisions.back();
  record.comparison = Compare(decision, *record.end);
  if (record.comparison.not_compared.empty()) {
    book_.Add(decision.route, record.comparison.residuals);
  } else {
    book_.CountNotCompared();
  }
  CountBytes(*entry);
}

// Counts the memory of the entry's record again and drops the oldest entries, maybe this one, until
// the limits are kept.
void DecisionLog::CountBytes(Entry& entry) {
  const size_t bytes = BytesOf(entry.record);
  bytes_ += bytes;
  bytes_ -= std::exchange(entry.bytes, bytes);
  while (entries_.size() > limits_.requests || bytes_ > limits_.bytes) DropOldest();
}

void DecisionLog::DropOldest() {
  const Entry& oldest = *entries_.front();
  bytes_ -= oldest.bytes;
  by_number_.erase(oldest.number);
  const auto newest = by_id_.find(oldest.record.request_id);
  if (newest->second == &oldest) by_id_.erase(newest);
  entries_.pop_front();
  kept_ = entries_.size();
}

absl::StatusOr<v1::ExplainResponse> DecisionLog::Explain(const v1::ExplainRequest& request,
                                                         TimePoint now) const {
  v1::ExplainResponse response;
  const auto add = [&](const Entry& entry) {
    *response.add_requests() = ToMessage(entry.record, policy_, now);
  };
  if (request.has_latest()) {
    const auto wanted = static_cast<size_t>(std::max(0, request.latest()));
    const size_t count = std::min(wanted, entries_.size());
    for (size_t i = 0; i < count; ++i) {
      add(*entries_[entries_.size() - 1 - i]);
      // The times of all layers would make a list of many requests too long.
      v1::RequestExplanation& added = *response.mutable_requests()->rbegin();
      if (added.has_handoff()) added.mutable_handoff()->clear_layers();
    }
    return response;
  }
  const auto found = by_id_.find(request.request_id());
  if (found == by_id_.end()) {
    return NotFound(
        "request_id={}: this router has no decision on such a request. It keeps those on the "
        "latest "
        "{} requests that it sent to a worker, now {}, in at most {} bytes, since it started. The "
        "id "
        "is the one that the client gave, else the one in the answer's summary",
        request.request_id(), limits_.requests, entries_.size(), limits_.bytes);
  }
  add(*found->second);
  return response;
}

v1::PredictionUse DecisionLog::Use() const {
  v1::PredictionUse use;
  use.set_policy(policy_);
  use.set_decisions(decisions_);
  use.set_kept_requests(static_cast<int32_t>(kept_));
  use.set_kept_bytes(bytes_);
  book_.AddTo(use);
  return use;
}

}  // namespace tandem
