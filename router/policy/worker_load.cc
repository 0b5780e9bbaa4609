#include "router/policy/worker_load.h"

#include <algorithm>

namespace tandem {
namespace {

// One scale for both kinds of work: a step computes a few hundred prompt tokens in the time that
// it takes to decode a few running sequences, so a sequence weighs as much as this many prompt
// tokens. A guess, for workers whose costs are not measured.
constexpr int64_t kSequenceWeight = 64;

}  // namespace

double LoadOf(const WorkerView& worker) {
  return static_cast<double>(worker.PendingPromptTokens() + kSequenceWeight * worker.Sequences());
}

double LoadOf(const Placement& placement) {
  const double prefill = LoadOf(*placement.prefill);
  return placement.decode == nullptr ? prefill : std::max(prefill, LoadOf(*placement.decode));
}

}  // namespace tandem
