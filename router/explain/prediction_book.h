#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/explain/prediction_comparison.h"
#include "router/policy/prediction_errors.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {

// Keeps how well the predictions of recent requests came true: error, bias and coverage per worker,
// per link and over all. At most kMaxWorkers and kMaxLinks are known at a time; the one whose latest
// request ended first makes room for another.
// Thread-safe.
class PredictionBook final : public PredictionErrors {
 public:
  static constexpr size_t kMaxWorkers = 256;
  static constexpr size_t kMaxLinks = 256;
  // Requests after which an error is known.
  static constexpr uint64_t kEnough = 10;
  // A request weighs one part in so many; until there are so many, all weigh the same.
  static constexpr uint64_t kMemory = 64;
  // The stated interval is so many times the mean absolute error: for errors that are distributed
  // like Laplace's double exponential, 90% of the requests lie within ln(10) times their mean.
  static constexpr double kIntervalFactor = 2.3;

  // A request that ran at this placement ended.
  void Add(const ScoredPlacement& placement, const std::vector<Residual>& residuals);
  // A request ended whose prediction, if it had one, cannot be compared.
  void CountNotCompared();

  // What to state for the prediction of a placement: from the errors of its workers, and of all
  // workers where too few requests of these were compared.
  StatedIntervals IntervalsFor(const ScoredPlacement& placement) const;

  std::optional<double> Overall(PredictionTerm term) const override;
  std::optional<double> OfWorker(PredictionTerm term, const WorkerId& worker) const override;
  std::optional<double> MessagesMs(const WorkerId& prefill) const override;
  std::optional<double> HandOffMs(const WorkerId& prefill, const WorkerId& decode) const override;
  std::optional<double> OfLink(const WorkerId& prefill, const WorkerId& decode) const override;

  // Fills in the errors, in the order of workers and terms.
  void AddTo(v1::PredictionUse& use) const;

 private:
  struct TermError {
    uint64_t compared = 0;
    double error = 0;
    double bias = 0;
    double actual_ms = 0;  // mean of what came true
    uint64_t stated = 0;   // of those compared, with a stated interval
    double coverage = 0;
  };
  using TermErrors = std::array<TermError, kNumPredictionTerms>;
  // A worker, or two for a link: its peer has a name then.
  struct Subject {
    std::string worker;
    std::string peer;
    friend auto operator<=>(const Subject&, const Subject&) = default;
  };
  struct Entry {
    // A process that takes over a name starts anew.
    std::array<uint64_t, 2> incarnations{};
    uint64_t latest = 0;  // number of the latest request
    TermErrors terms{};
  };
  using Entries = std::map<Subject, Entry>;

  static void AddTo(TermError& term, const Residual& residual);
  static std::optional<double> ErrorOf(const TermError& term);
  // `entry` may be null.
  static std::optional<double> LearnedMs(const Entry* entry, PredictionTerm of);
  static const Entry* Find(const Entries& entries, const WorkerId& worker, const WorkerId& peer);
  static void Report(const Subject& subject, const TermErrors& terms, v1::PredictionUse& use);

  Entry& EntryOf(Entries& entries, size_t most, const WorkerId& worker, const WorkerId& peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<double> ErrorAt(PredictionTerm term, const ScoredPlacement& placement) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  uint64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t not_compared_ ABSL_GUARDED_BY(mutex_) = 0;
  TermErrors overall_ ABSL_GUARDED_BY(mutex_) = {};
  Entries workers_ ABSL_GUARDED_BY(mutex_);
  Entries links_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
