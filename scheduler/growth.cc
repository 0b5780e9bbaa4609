// Blocks at full length, and how many more than now those admitted will hold at their worst moment.
#include <algorithm>

#include "scheduler/scheduler.h"

namespace tandem {

// All rows share the prompt's full blocks; what comes behind these each has for itself.
int64_t Scheduler::BlocksAt(const SequenceSpec& spec, int64_t tokens) const {
  const int64_t size = options_.block_tokens;
  const int64_t blocks = (tokens + size - 1) / size;
  if (tokens <= spec.prompt_tokens) return blocks;
  const int64_t shared = spec.prompt_tokens / size;
  return shared + spec.width * (blocks - shared);
}

// A block that several rows are about to write is copied for each of them while the source still
// stands: at worst one source for every two rows.
int64_t Scheduler::MostBlocks(const SequenceSpec& spec) const {
  return BlocksAt(spec, spec.max_total_tokens) + spec.width / 2;
}

Scheduler::Future Scheduler::FutureOf(const SequenceState& sequence) const {
  const SequenceSpec& spec = sequence.spec;
  const int32_t allowed = spec.max_total_tokens - spec.prompt_tokens;
  const int32_t done = std::min(sequence.known_tokens - spec.prompt_tokens, allowed);
  const int64_t held = std::min(sequence.known_tokens, spec.max_total_tokens);
  return {.left = expected_output_.Left(done, allowed),
          .width = spec.width,
          .gives_back = BlocksAt(spec, held) - sequence.shared_tokens / options_.block_tokens};
}

Scheduler::Outlook Scheduler::OutlookOfAdmitted(const CacheView& view) const {
  Outlook outlook;
  for (const SequenceState& one : InPhase(Phase::kPrefilling)) {
    outlook.futures.push_back(FutureOf(one));
    outlook.owed += view.BlocksToReach(one.spec.id, one.known_tokens);
  }
  for (Phase phase : {Phase::kRunning, Phase::kParked, Phase::kSwappingIn}) {
    for (const SequenceState& one : InPhase(phase)) {
      outlook.futures.push_back(FutureOf(one));
      if (phase == Phase::kParked) outlook.futures.back().gives_back = 0;  // when is not known
    }
  }
  std::sort(outlook.futures.begin(), outlook.futures.end(), &Future::EndsLater);
  return outlook;
}

void Scheduler::Outlook::Add(const Future& future) {
  futures.insert(std::upper_bound(futures.begin(), futures.end(), future, &Future::EndsLater),
                 future);
}

// The worst moment is just before somebody ends: by then each that lives on has grown by what the
// one still had to go, and those that ended before gave back what they hold now.
int64_t Scheduler::PeakGrowth(const Outlook& outlook, const Future& newcomer) const {
  int64_t given_back = newcomer.gives_back;
  for (const Future& one : outlook.futures) given_back += one.gives_back;
  int64_t peak = 0;
  int64_t rows = 0;
  const auto visit = [&](const Future& one) {
    rows += one.width;
    given_back -= one.gives_back;
    const int64_t grown = (rows * one.left + options_.block_tokens - 1) / options_.block_tokens;
    peak = std::max(peak, grown - given_back);
  };
  bool visited = newcomer.width == 0;
  for (const Future& one : outlook.futures) {
    if (!visited && Future::EndsLater(newcomer, one)) {
      visit(newcomer);
      visited = true;
    }
    visit(one);
  }
  if (!visited) visit(newcomer);
  return outlook.owed + peak;
}

}  // namespace tandem
