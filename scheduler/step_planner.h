#pragma once

#include "scheduler/cache_view.h"
#include "scheduler/forecast.h"
#include "scheduler/latency_model/step_learner.h"
#include "scheduler/options.h"
#include "scheduler/preempter.h"
#include "scheduler/sequence_book.h"
#include "scheduler/stats.h"
#include "scheduler/step_draft.h"
#include "scheduler/step_plan.h"

namespace tandem {

// Plans one step after another: sequences whose deadline passed are removed, running sequences
// decode, swapped ones come back, and the rest of the budget goes to prefill chunks.
// Thread: engine. Everything that the constructor takes must outlive it.
class StepPlanner {
 public:
  StepPlanner(const SchedulerOptions& options, const StepLearner& latency, const Forecast& forecast,
              SequenceBook& book)
      : options_(options),
        latency_(latency),
        forecast_(forecast),
        book_(book),
        preempter_(options, latency, book) {}

  // Plans the next step; `now` becomes the time of the book.
  StepPlan Plan(TimePoint now, const CacheView& view);

  // Sets those fields of `stats` that count preemptions.
  void AddCounts(SchedulerStats& stats) const { preempter_.AddCounts(stats); }

 private:
  void RemoveExpired(StepDraft& draft);
  void PlanDecodes(StepDraft& draft);
  void PlanSwapIns(StepDraft& draft);
  void PlanPrefills(StepDraft& draft);

  const SchedulerOptions& options_;
  const StepLearner& latency_;
  const Forecast& forecast_;
  SequenceBook& book_;
  Preempter preempter_;
};

}  // namespace tandem
