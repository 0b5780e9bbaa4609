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
// per link and over all. At most kMaxWorkers and kMaxLinks are known at a time; the one whose
// latest request ended first makes room for another. Thread-safe.
class PredictionBook final : public PredictionErrors {
 public:
  static constexpr size_t kMaxWorkers = 256;
  static constexpr size_t kMaxLinks = 256;
  // The error of a term is known once this many requests were compared.
  static constexpr uint64_t kEnough = 10;
  // The newest request has a weight of one part in kMemory; until there are kMemory requests, all
  // weigh the same.
  static constexpr uint64_t kMemory = 64;
  // The stated interval is this multiple of the mean absolute error: for errors that are
  // distributed like Laplace's double exponential, 90% of the requests lie within ln(10) times
  // their mean.
  static constexpr double kIntervalFactor = 2.3;

  // A request that ran at this placement has ended with these residuals.
  void Add(const ScoredPlacement& placement, const std::vector<Residual>& residuals);
  // A request ended whose prediction, if it had one, cannot be compared.
  void CountNotCompared();

  // The intervals to state for the prediction of a placement: from the errors of its workers and
  // its link, and from those of all requests where too few of theirs were compared.
  StatedIntervals IntervalsFor(const ScoredPlacement& placement) const;

  std::optional<double> Overall(PredictionTerm term) const override;
  std::optional<double> OfWorker(PredictionTerm term, const WorkerId& worker) const override;
  std::optional<double> MessagesMs(const WorkerId& prefill) const override;
  std::optional<double> HandOffMs(const WorkerId& prefill, const WorkerId& decode) const override;
  std::optional<double> OfLink(const WorkerId& prefill, const WorkerId& decode) const override;

  // Adds all errors to `use`, in the order of workers and terms.
  void AddTo(v1::PredictionUse& use) const;

 private:
  struct TermError {
    uint64_t compared = 0;
    double error = 0;
    double bias = 0;
    double actual_ms = 0;  // the mean of the actual times
    uint64_t stated = 0;   // the compared requests that had a stated interval
    double coverage = 0;
  };
  using TermErrors = std::array<TermError, kNumPredictionTerms>;
  // What errors are kept of: a worker, or a link, which is a worker and its peer. A worker alone
  // has no peer.
  struct Subject {
    std::string worker;
    std::string peer;
    friend auto operator<=>(const Subject&, const Subject&) = default;
  };
  struct Entry {
    // The incarnations of the worker and its peer. A process that takes over a name starts without
    // errors.
    std::array<uint64_t, 2> incarnations{};
    uint64_t latest = 0;  // number of the latest request
    TermErrors terms{};
  };
  using Entries = std::map<Subject, Entry>;

  static void AddTo(TermError& term, const Residual& residual);
  static std::optional<double> ErrorOf(const TermError& term);
  // The mean actual time of a term in ms; nothing where `entry` is null or too few requests were
  // compared.
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
