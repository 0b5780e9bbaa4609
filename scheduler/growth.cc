// Blocks at full length, and how many more than now those admitted will hold at their worst moment.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/scheduler.h"

namespace tandem {

// Rows of any number of sequences, which grow by as many tokens each.
class Scheduler::Rows {
 public:
  explicit Rows(int32_t block_tokens)
      : block_tokens_(block_tokens), with_less_room_(static_cast<size_t>(block_tokens)) {}

  void Add(const Future& one) {
    rows_ += one.width;
    copies_ += one.copies;
    for (int32_t room = one.room + 1; room < block_tokens_; ++room) {
      with_less_room_[static_cast<size_t>(room)] += one.width;
    }
  }

  // Exactly: what fits into the last block of a row takes no new one.
  int64_t BlocksToGrow(int32_t tokens) const {
    if (tokens == 0) return 0;
    const int32_t rest = tokens % block_tokens_;
    return copies_ + rows_ * (tokens / block_tokens_) + with_less_room_[static_cast<size_t>(rest)];
  }

 private:
  const int32_t block_tokens_;
  int64_t rows_ = 0;
  int64_t copies_ = 0;
  std::vector<int64_t> with_less_room_;  // [i]: rows that have room for less than i tokens
};

// All rows share the prompt's full blocks; what comes behind these each has for itself.
int64_t Scheduler::BlocksAt(const SequenceSpec& spec, int64_t tokens) const {
  const int64_t size = options_.block_tokens;
  const int64_t blocks = (tokens + size - 1) / size;
  if (tokens <= spec.prompt_tokens) return blocks;
  const int64_t shared = spec.prompt_tokens / size;
  return shared + spec.width * (blocks - shared);
}

// A block that several rows are about to write is copied for each of them while the source still
// stands: at worst one source for every two rows. Who never writes behind its prompt copies none.
int64_t Scheduler::MostBlocks(const SequenceSpec& spec) const {
  const bool grows = spec.max_total_tokens > spec.prompt_tokens;
  return BlocksAt(spec, spec.max_total_tokens) + (grows ? spec.width / 2 : 0);
}

// One that is on the host, or comes from there, holds or will hold no block yet for the last token
// that it knows: it grows by that too. Rows that share the prompt's last block when it is not full
// copy it with their first tokens, while it still stands.
Scheduler::Future Scheduler::FutureOf(const SequenceState& sequence) const {
  const SequenceSpec& spec = sequence.spec;
  const bool comes_back = sequence.phase == Phase::kSwapped || sequence.phase == Phase::kSwappingIn;
  const int32_t known = std::min(sequence.known_tokens, spec.max_total_tokens);
  const int32_t held = comes_back ? std::min(sequence.known_tokens - 1, known) : known;
  const int32_t done = known - spec.prompt_tokens;
  const int32_t allowed = spec.max_total_tokens - spec.prompt_tokens;
  const bool forks = spec.width > 1 && held <= spec.prompt_tokens;
  const int32_t size = options_.block_tokens;
  const int32_t room = (size - held % size) % size;
  return {.left = expected_output_.Left(done, allowed) + known - held,
          .width = spec.width,
          .room = room,
          .copies = forks && room > 0 ? spec.width : 0,
          .gives_back = BlocksAt(spec, held) - sequence.shared_tokens / size};
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
  Rows rows(options_.block_tokens);
  const auto visit = [&](const Future& one) {
    rows.Add(one);
    given_back -= one.gives_back;
    peak = std::max(peak, rows.BlocksToGrow(one.left) - given_back);
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
