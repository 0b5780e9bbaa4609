#include "bench/serving/sweep_workload.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/status.h"
#include "bench/serving/arrivals.h"
#include "bench/serving/random.h"
#include "fmt/ranges.h"

namespace tandem::loadgen {
namespace {

// Lengths are drawn uniformly between these shares of the context.
struct Shape {
  double input_low;
  double input_high;
  double output_low;
  double output_high;
};

constexpr Shape kShort = {1. / 32, 1. / 8, 1. / 32, 1. / 16};
constexpr Shape kLong = {1. / 4, 1. / 2, 1. / 32, 1. / 16};
constexpr Shape kPromptHeavy = {1. / 4, 1. / 2, 1. / 128, 1. / 64};
constexpr Shape kOutputHeavy = {1. / 64, 1. / 32, 1. / 8, 1. / 4};
constexpr Shape kWholeContext = {1. / 2, 7. / 8, 1. / 64, 1. / 32};
constexpr Shape kTurn = {1. / 32, 1. / 16, 1. / 64, 1. / 32};

// How the two shapes of a workload take turns.
enum class Turns : uint8_t {
  kRandom,  // each request is of either with equal probability
  kPhases,  // eight phases of one shape each
};

constexpr SweepWorkload kWorkloads[] = {
    {"short", "short prompts"},
    {"long", "long prompts"},
    {"mixed", "half short, half long prompts"},
    {"shifting", "phases of long prompts with short outputs, and of the reverse"},
    {"bursty", "as mixed, in bursts (gamma-distributed gaps of shape 0.25)"},
    {"long-context", "prompts of half to seven eighths of the context"},
    {"shared-prefix", "short prompts behind one of 8 prefixes of a quarter of the context"},
    {"agentic", "16 agents at a time, whose prompts repeat all that was said in up to 8 turns"},
};

struct Definition {
  Shape first = kShort;
  Shape second = kShort;
  Turns turns = Turns::kRandom;
  double burstiness = 1;
  double prefix = 0;  // share of the context
  int prefixes = 1;
  int sessions = 0;  // conversations under way; 0: requests are independent
};

constexpr int kTurnsOfSession = 8;
constexpr int kPhases = 8;

Definition DefinitionOf(std::string_view name) {
  if (name == "long") return {.first = kLong, .second = kLong};
  if (name == "mixed") return {.first = kShort, .second = kLong};
  if (name == "shifting") {
    return {.first = kPromptHeavy, .second = kOutputHeavy, .turns = Turns::kPhases};
  }
  if (name == "bursty") return {.first = kShort, .second = kLong, .burstiness = 0.25};
  if (name == "long-context") return {.first = kWholeContext, .second = kWholeContext};
  if (name == "shared-prefix") return {.prefix = 1. / 4, .prefixes = 8};
  if (name == "agentic") return {.first = kTurn, .second = kTurn, .prefix = 1. / 8, .sessions = 16};
  return {};  // short
}

// What a seed is mixed with, one value per use.
enum SweepSeed : uint64_t { kArrivalTimes, kDraws, kRequestText, kPrefixText };

class Generator {
 public:
  Generator(const Definition& definition, const SweepLoad& load)
      : definition_(definition),
        load_(load),
        draws_(MixSeeds(load.seed, kDraws)),
        sessions_(static_cast<size_t>(definition.sessions)) {}

  Schedule Make() {
    const std::vector<Duration> times =
        MakeArrivals({.rate = load_.rate, .burstiness = definition_.burstiness}, load_.requests,
                     MixSeeds(load_.seed, kArrivalTimes));
    Schedule schedule;
    for (int32_t i = 0; i < load_.requests; ++i) {
      const Shape& shape = ShapeOf(i);
      const PromptSegment own = {
          MixSeeds(MixSeeds(load_.seed, kRequestText), static_cast<uint64_t>(i)),
          Draw(shape.input_low, shape.input_high)};
      ScheduledRequest request;
      request.at = times[static_cast<size_t>(i)];
      request.prompt = sessions_.empty() ? AfterPrefix(own) : InSession(own);
      request.output_tokens = Draw(shape.output_low, shape.output_high);
      schedule.requests.push_back(std::move(request));
    }
    return schedule;
  }

 private:
  using Prompt = std::vector<PromptSegment>;

  const Shape& ShapeOf(int32_t index) {
    const bool second = definition_.turns == Turns::kRandom
                            ? draws_.Uniform() < 0.5
                            : int64_t{index} * kPhases / load_.requests % 2 == 1;
    return second ? definition_.second : definition_.first;
  }

  int32_t Draw(double low, double high) {
    const double share = low + (high - low) * draws_.Uniform();
    return std::max(1, static_cast<int32_t>(share * load_.context_tokens));
  }

  Prompt AfterPrefix(const PromptSegment& own) {
    if (definition_.prefix == 0) return {own};
    const auto prefix = static_cast<uint64_t>(draws_.Uniform() * definition_.prefixes);
    return {{MixSeeds(MixSeeds(load_.seed, kPrefixText), prefix),
             static_cast<int32_t>(definition_.prefix * load_.context_tokens)},
            own};
  }

  // The next turn of some session: what was said there so far, and `own`. Each session being as
  // likely, its turns are a Poisson process too, whatever the number of requests.
  Prompt InSession(const PromptSegment& own) {
    Prompt& said = sessions_[static_cast<size_t>(draws_.Uniform() * definition_.sessions)];
    if (said.empty() || said.size() > kTurnsOfSession) {
      said = AfterPrefix(own);
    } else {
      said.push_back(own);
    }
    return said;
  }

  const Definition& definition_;
  const SweepLoad& load_;
  RandomStream draws_;
  std::vector<Prompt> sessions_;
};

}  // namespace

std::span<const SweepWorkload> SweepWorkloads() { return kWorkloads; }

absl::StatusOr<Schedule> MakeSweepSchedule(std::string_view workload, const SweepLoad& load) {
  std::vector<std::string_view> names;
  for (const SweepWorkload& known : kWorkloads) names.push_back(known.name);
  if (std::find(names.begin(), names.end(), workload) == names.end()) {
    return InvalidArgument("workload {}: choose among {}", workload, fmt::join(names, ", "));
  }
  const Definition definition = DefinitionOf(workload);
  return Generator(definition, load).Make();
}

}  // namespace tandem::loadgen
