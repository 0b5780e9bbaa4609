#include "engine/profile/step_plan.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace tandem {
namespace {

constexpr int32_t kShortContext = 16;

class Planner {
 public:
  Planner(const StepLimits& limits, PlanSize size, uint64_t seed)
      : limits_(limits), size_(size), random_(seed) {}

  std::vector<PlannedStep> Plan() {
    AddPrefills();
    AddDecodes();
    if (size_ != PlanSize::kStart) {
      AddGrid();
      AddCurve();
    }
    AddHeldOut();
    return std::move(steps_);
  }

 private:
  int32_t most_tokens() const { return limits_.max_step_tokens; }
  int32_t most_sequences() const {
    return std::min(limits_.max_sequences, limits_.max_step_tokens / 2);
  }
  int32_t most_context() const { return limits_.max_context_tokens; }

  // Sizes from `least` to `most`: each twice the one before (four times for PlanSize::kStart) and,
  // in a full plan, another one between each two; the last one is `most`.
  std::vector<int32_t> Sizes(int32_t least, int32_t most) const {
    std::set<int32_t> sizes = {most};
    for (int32_t size = least; size < most; size *= size_ == PlanSize::kStart ? 4 : 2) {
      sizes.insert(size);
      if (size_ == PlanSize::kFull && size * 3 / 2 < most) sizes.insert(size * 3 / 2);
    }
    return {sizes.begin(), sizes.end()};
  }

  int32_t Any(int32_t least, int32_t most) {
    return std::uniform_int_distribution<int32_t>(least, most)(random_);
  }
  // A random number whose logarithm is uniform: as likely between 1 and 2 as between 256 and 512.
  int32_t AnyOrder(int32_t least, int32_t most) {
    std::uniform_real_distribution<double> order(std::log(least), std::log(most));
    return std::clamp(static_cast<int32_t>(std::lround(std::exp(order(random_)))), least, most);
  }

  void AddPrefills() {
    for (const int32_t tokens : Sizes(1, most_tokens())) {
      for (const int32_t cached : {0, Any(1, most_context())}) {
        steps_.push_back({{.prefill_tokens = tokens, .cached_tokens = cached}, SampleUse::kFit});
      }
    }
  }

  void AddDecodes() {
    for (const int32_t sequences : Sizes(1, most_sequences())) {
      for (const int32_t context :
           {kShortContext, Any(kShortContext, most_context()), most_context()}) {
        steps_.push_back({{.sequences = sequences, .context_tokens = context}, SampleUse::kFit});
      }
    }
  }

  void AddGrid() {
    const int32_t most = most_tokens() - most_sequences();
    const std::set<int32_t> tokens = {std::min(16, most), std::min(64, most), std::min(160, most),
                                      most};
    std::set<int32_t> sequences = {1, std::min(4, most_sequences()), most_sequences()};
    if (size_ == PlanSize::kFull) sequences.insert(std::min(16, most_sequences()));
    const std::set<int32_t> contexts = {std::max(kShortContext, most_context() / 8),
                                        most_context()};
    for (const int32_t n : tokens) {
      for (const int32_t b : sequences) {
        for (const int32_t context : contexts) {
          steps_.push_back(
              {{.prefill_tokens = n, .sequences = b, .context_tokens = context}, SampleUse::kGrid});
        }
      }
    }
  }

  void AddCurve() {
    for (const int32_t tokens : Sizes(1, most_tokens() - 1)) {
      steps_.push_back({{.prefill_tokens = tokens, .sequences = 1, .context_tokens = kShortContext},
                        SampleUse::kCurve});
    }
  }

  void AddHeldOut() {
    const int count = size_ == PlanSize::kFull ? 16 : size_ == PlanSize::kQuick ? 8 : 4;
    for (int i = 0; i < count; ++i) {
      const int32_t sequences = AnyOrder(1, most_sequences());
      const int32_t context = Any(kShortContext, most_context());
      const int32_t cached = i % 2 == 0 ? 0 : Any(1, most_context());
      steps_.push_back({{.prefill_tokens = AnyOrder(4, most_tokens()), .cached_tokens = cached},
                        SampleUse::kHeldOut});
      steps_.push_back({{.sequences = sequences, .context_tokens = context}, SampleUse::kHeldOut});
      steps_.push_back({{.prefill_tokens = AnyOrder(4, most_tokens() - sequences),
                         .cached_tokens = cached,
                         .sequences = sequences,
                         .context_tokens = context},
                        SampleUse::kHeldOut});
    }
  }

  const StepLimits& limits_;
  const PlanSize size_;
  std::mt19937_64 random_;
  std::vector<PlannedStep> steps_;
};

}  // namespace

std::vector<PlannedStep> PlanSteps(const StepLimits& limits, PlanSize size, uint64_t seed) {
  return Planner(limits, size, seed).Plan();
}

}  // namespace tandem
