#pragma once

#include <cstdint>

#include "scheduler/forecast.h"
#include "scheduler/latency_model/step_learner.h"
#include "scheduler/memory_forecast.h"
#include "scheduler/options.h"
#include "scheduler/policy.h"
#include "scheduler/sequence_book.h"
#include "scheduler/step_draft.h"

namespace tandem {

// Plans the prefill chunks of one step, in the order of the queue: chunks of prefilling sequences,
// and admissions of waiting ones. A waiting sequence is admitted when its first chunk fits and the
// forecast has room for it until it ends. The first sequence that has no room may be overtaken by
// others max_skips times; an aged one is not overtaken at all.
// Used for one call of Run. Thread: engine. Everything that the constructor takes must outlive it.
class PrefillPlanner {
 public:
  PrefillPlanner(const SchedulerOptions& options, const StepLearner& latency,
                 const Forecast& forecast, SequenceBook& book, StepDraft& draft);

  void Run();

 private:
  struct TokenRange {
    int32_t begin = 0;
    int32_t end = 0;
  };

  // Admits a sequence of phase waiting, the next in the order of the queue, if it has room.
  void TryAdmit(SequenceState& sequence);
  bool RequestRestore(SequenceState& sequence, const CachedPrefix& prefix);
  int32_t TokensToAttach(const SequenceState& sequence, const CachedPrefix& prefix);
  bool HasRoomFor(const SequenceState& sequence) const;
  void NoteNoRoom(SequenceState& sequence);
  void CountFailedAttempt();
  void Admit(const Admission& admission);

  // Adds a chunk to the plan: the longest one from token `begin` on for which there are tokens and
  // blocks. Returns false when there is none.
  bool PlanChunk(const SequenceState& sequence, int32_t begin);
  TokenRange FittingChunk(const SequenceState& sequence, int32_t begin) const;
  int64_t BlocksToReach(const SequenceState& sequence, int32_t end) const;
  // Whether a sequence that is admitted now would be the only one that computes.
  bool NoneComputes() const { return book_.NoneComputes() && draft_.plan.admitted.empty(); }

  const SchedulerOptions& options_;
  const StepLearner& latency_;
  const Forecast& forecast_;
  SequenceBook& book_;
  StepDraft& draft_;
  int32_t rows_ = 0;  // what is left of max_sequences
  AdmissionFilter filter_ = AdmissionFilter::kAll;
  MemoryForecast memory_;  // used only while sequences may be admitted
  bool attaches_ = false;  // whether an admitted sequence attaches a cached prefix
  const SequenceState* ignores_prefix_ = nullptr;  // sequence that computes its cached prefix anew
  int32_t failed_attempts_ = 0;                    // how many sequences this step failed to admit
  SequenceState* first_without_room_ = nullptr;
};

}  // namespace tandem
