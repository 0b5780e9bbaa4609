#include "router/explain/prediction_book.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

bool IsOfLink(PredictionTerm term) {
  return term == PredictionTerm::kTransfer || term == PredictionTerm::kHandOff;
}

// The worker to whose statistics the error of a term is added. Errors of a link's terms are added
// to the statistics of the link instead.
const WorkerId& AnsweringWorker(PredictionTerm term, const ScoredPlacement& placement) {
  if (placement.route == v1::ROUTE_UNIFIED) return placement.prefill;
  switch (term) {
    case PredictionTerm::kTtft:
    case PredictionTerm::kQueue:
    case PredictionTerm::kPrefill:
    case PredictionTerm::kTransfer:
    case PredictionTerm::kMessages:
    case PredictionTerm::kHandOff:
      return placement.prefill;
    case PredictionTerm::kTpot:
    case PredictionTerm::kE2e:
    case PredictionTerm::kAdmission:
    case PredictionTerm::kDecode:
      return placement.decode;
  }
  return placement.prefill;
}

// An actual time counts as at most this multiple of the mean of those before it, so that one stall
// does not spoil the mean.
constexpr double kMostOfMean = 4;

// The weight of the newest of `count` samples in a mean that forgets old ones.
double WeightOfNewest(uint64_t count) {
  return 1.0 / static_cast<double>(std::min(count, PredictionBook::kMemory));
}

}  // namespace

void PredictionBook::AddTo(TermError& term, const Residual& residual) {
  const double weight = WeightOfNewest(++term.compared);
  term.error += weight * (std::abs(residual.relative) - term.error);
  term.bias += weight * (residual.relative - term.bias);
  // If an outlier counted in full, a machine that stalled once would be expected to do so again for
  // a long time.
  const bool is_known = term.compared > kEnough && term.actual_ms > 0;
  const double most = is_known ? kMostOfMean * term.actual_ms : residual.actual_ms;
  term.actual_ms += weight * (std::min(residual.actual_ms, most) - term.actual_ms);
  if (residual.interval_ms <= 0) return;
  term.coverage +=
      WeightOfNewest(++term.stated) * ((residual.IsInside() ? 1.0 : 0.0) - term.coverage);
}

PredictionBook::Entry& PredictionBook::EntryOf(Entries& entries, size_t most,
                                               const WorkerId& worker, const WorkerId& peer) {
  const Subject subject{.worker = worker.name, .peer = peer.name};
  if (entries.size() >= most && !entries.contains(subject)) {
    entries.erase(std::ranges::min_element(
        entries, {}, [](const Entries::value_type& one) { return one.second.latest; }));
  }
  Entry& entry = entries[subject];
  const std::array<uint64_t, 2> incarnations = {worker.incarnation, peer.incarnation};
  if (entry.incarnations != incarnations) entry = {.incarnations = incarnations};
  entry.latest = requests_;
  return entry;
}

void PredictionBook::Add(const ScoredPlacement& placement, const std::vector<Residual>& residuals) {
  absl::MutexLock lock(&mutex_);
  ++requests_;
  for (const Residual& residual : residuals) {
    const auto term = static_cast<size_t>(residual.term);
    AddTo(overall_[term], residual);
    Entry& entry =
        IsOfLink(residual.term)
            ? EntryOf(links_, kMaxLinks, placement.prefill, placement.decode)
            : EntryOf(workers_, kMaxWorkers, AnsweringWorker(residual.term, placement), {});
    AddTo(entry.terms[term], residual);
  }
}

void PredictionBook::CountNotCompared() {
  absl::MutexLock lock(&mutex_);
  ++not_compared_;
}

std::optional<double> PredictionBook::ErrorOf(const TermError& term) {
  if (term.compared < kEnough) return std::nullopt;
  return term.error;
}

std::optional<double> PredictionBook::LearnedMs(const Entry* entry, PredictionTerm of) {
  if (entry == nullptr) return std::nullopt;
  const TermError& term = entry->terms[static_cast<size_t>(of)];
  if (term.compared < kEnough) return std::nullopt;
  return std::max(0.0, term.actual_ms);
}

const PredictionBook::Entry* PredictionBook::Find(const Entries& entries, const WorkerId& worker,
                                                  const WorkerId& peer) {
  const auto found = entries.find({.worker = worker.name, .peer = peer.name});
  if (found == entries.end()) return nullptr;
  const std::array<uint64_t, 2> incarnations = {worker.incarnation, peer.incarnation};
  return found->second.incarnations == incarnations ? &found->second : nullptr;
}

std::optional<double> PredictionBook::ErrorAt(PredictionTerm term,
                                              const ScoredPlacement& placement) const {
  const Entry* const entry = IsOfLink(term) ? Find(links_, placement.prefill, placement.decode)
                                            : Find(workers_, AnsweringWorker(term, placement), {});
  const auto index = static_cast<size_t>(term);
  std::optional<double> error;
  if (entry != nullptr) error = ErrorOf(entry->terms[index]);
  return error ? error : ErrorOf(overall_[index]);
}

StatedIntervals PredictionBook::IntervalsFor(const ScoredPlacement& placement) const {
  StatedIntervals intervals{};
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; i < kNumPredictionTerms; ++i) {
    const auto error = ErrorAt(static_cast<PredictionTerm>(i), placement);
    if (error) intervals[i] = kIntervalFactor * *error;
  }
  return intervals;
}

std::optional<double> PredictionBook::Overall(PredictionTerm term) const {
  absl::MutexLock lock(&mutex_);
  return ErrorOf(overall_[static_cast<size_t>(term)]);
}

std::optional<double> PredictionBook::OfWorker(PredictionTerm term, const WorkerId& worker) const {
  absl::MutexLock lock(&mutex_);
  const Entry* const entry = Find(workers_, worker, {});
  if (entry == nullptr) return std::nullopt;
  return ErrorOf(entry->terms[static_cast<size_t>(term)]);
}

std::optional<double> PredictionBook::MessagesMs(const WorkerId& prefill) const {
  absl::MutexLock lock(&mutex_);
  return LearnedMs(Find(workers_, prefill, {}), PredictionTerm::kMessages);
}

std::optional<double> PredictionBook::HandOffMs(const WorkerId& prefill,
                                                const WorkerId& decode) const {
  absl::MutexLock lock(&mutex_);
  return LearnedMs(Find(links_, prefill, decode), PredictionTerm::kHandOff);
}

std::optional<double> PredictionBook::OfLink(const WorkerId& prefill,
                                             const WorkerId& decode) const {
  absl::MutexLock lock(&mutex_);
  const Entry* const entry = Find(links_, prefill, decode);
  if (entry == nullptr) return std::nullopt;
  return ErrorOf(entry->terms[static_cast<size_t>(PredictionTerm::kTransfer)]);
}

void PredictionBook::Report(const Subject& subject, const TermErrors& terms,
                            v1::PredictionUse& use) {
  for (size_t i = 0; i < kNumPredictionTerms; ++i) {
    const TermError& term = terms[i];
    if (term.compared == 0) continue;
    v1::PredictionError& error = *use.add_errors();
    error.set_worker(subject.worker);
    error.set_peer(subject.peer);
    error.set_term(std::string(kPredictionTermNames[i]));
    error.set_compared(term.compared);
    error.set_error(term.error);
    error.set_bias(term.bias);
    error.set_coverage(term.coverage);
    error.set_interval(kIntervalFactor * ErrorOf(term).value_or(0));
  }
}

void PredictionBook::AddTo(v1::PredictionUse& use) const {
  absl::MutexLock lock(&mutex_);
  use.set_not_compared(not_compared_);
  Report({}, overall_, use);
  for (const auto& [subject, entry] : workers_) Report(subject, entry.terms, use);
  for (const auto& [subject, entry] : links_) Report(subject, entry.terms, use);
}

}  // namespace tandem
