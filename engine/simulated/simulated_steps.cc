#include "engine/simulated/simulated_steps.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/rng.h"
#include "base/status.h"
#include "engine/step_chunks.h"

namespace tandem {
namespace {

constexpr double kMostStepMs = 60'000;
// How late steps may be and still catch up. A process that stood still for longer does not: its
// steps would take less time than its parameters say for too long.
constexpr Duration kMostLateness = std::chrono::milliseconds(20);
// The stream of random numbers for tokens, apart from that for output lengths.
constexpr uint64_t kTokenStream = 1;

StepFeatures LargestStep(const EngineOptions& options) {
  const int32_t tokens = options.scheduler.max_step_tokens;
  const int32_t sequences = options.scheduler.max_sequences;
  const int32_t context = options.max_context_tokens;
  return {.prefill_tokens = tokens,
          .prefill_pairs = int64_t{tokens} * context,
          .decode_sequences = sequences,
          .decode_context = std::min(int64_t{sequences} * context,
                                     int64_t{options.num_blocks} * options.layout.block_tokens)};
}

Duration ToDuration(ModelTime time) { return std::chrono::duration_cast<Duration>(time); }

// Makes up the most probable tokens of a step; the sampled token counts as the most probable one.
std::vector<TokenLogprob> MostProbable(const SampledToken& token, int32_t count,
                                       int32_t vocab_size) {
  constexpr float kFurther =
      0.5f;  // how much less probable each is than the one before, as a logarithm
  std::vector<TokenLogprob> top;
  for (int32_t i = 0; i < std::min(count, vocab_size); ++i) {
    top.push_back({.token_id = static_cast<int32_t>((int64_t{token.token_id} + i) % vocab_size),
                   .logprob = token.logprob - kFurther * static_cast<float>(i)});
  }
  return top;
}

float LogprobOf(uint32_t drawn) {
  constexpr float kLeastLogprob = -3;
  return kLeastLogprob * static_cast<float>(drawn) / 0x1p32f;
}

}  // namespace

absl::Status CheckSimulatedSteps(const EngineOptions& options,
                                 const SimulatedStepsOptions& simulated) {
  if (!std::isfinite(simulated.slowdown) || simulated.slowdown <= 0) {
    return InvalidArgument("the slowdown is {}: it must be a number above 0", simulated.slowdown);
  }
  const StepFeatures largest = LargestStep(options);
  const double ms = simulated.slowdown * simulated.steps.Step(largest).count();
  if (ms <= kMostStepMs) return absl::OkStatus();
  return InvalidArgument(
      "a step of {} prompt tokens beside {} decodes takes {:.0f} s by these parameters, at most "
      "{:.0f} "
      "s are simulated: check the coefficients, --simulated-slowdown and --max-step-tokens",
      largest.prefill_tokens, largest.decode_sequences, ms / 1e3, kMostStepMs / 1e3);
}

absl::Status SimulatedSteps::Forward(std::span<const Chunk> chunks, int32_t num_decodes,
                                     const LayerStored& layer_stored) {
  const TimePoint now = parts_.clock.Now();
  const TimePoint begins = follows_ ? std::max(ends_, now - kMostLateness) : now;
  RETURN_IF_ERROR(MakeRoom(chunks, parts_.store, copies_));
  const absl::Status copied =
      parts_.ops.CopyBlocks(parts_.stream, {.pool = parts_.store.view(), .pairs = {copies_.pairs}});
  copies_.Clear();
  RETURN_IF_ERROR(copied);

  const Duration whole =
      ToDuration(parts_.options.slowdown * parts_.options.steps.Step(FeaturesOf(chunks)));
  const int32_t layers = parts_.store.layout().num_layers;
  const bool has_prompts = num_decodes < std::ssize(chunks);
  for (int32_t layer = 0; layer_stored != nullptr && layer < layers; ++layer) {
    if (has_prompts) WaitUntil(begins + whole * (layer + 1) / layers);
    layer_stored(layer);
  }
  ends_ = begins + whole;
  WaitUntil(ends_);
  follows_ = true;
  return absl::OkStatus();
}

void SimulatedSteps::WaitUntil(TimePoint when) {
  if (parts_.options.wait_until != nullptr) return parts_.options.wait_until(when);
  std::this_thread::sleep_until(when);
}

std::span<absl::StatusOr<SampledToken>> SimulatedSteps::Sample(std::span<const Chunk> chunks) {
  results_.clear();
  scored_.clear();
  for (const Chunk& chunk : chunks) {
    if (chunk.num_scored > 0) scored_.emplace_back(Score(chunk));
    for (int32_t choice = 0; choice < chunk.samples; ++choice) {
      results_.emplace_back(Draw(chunk, choice));
    }
  }
  return results_;
}

SampledToken SimulatedSteps::Draw(const Chunk& chunk, int32_t choice) const {
  const RequestState& request = chunk.sequence->request;
  // Beams have no seed, but their candidates must differ, so the beam's last token serves as seed.
  const uint64_t seed =
      request.search ? static_cast<uint64_t>(chunk.tokens().back()) : SeedOf(chunk, choice);
  const int32_t num_top =
      request.search ? request.search->candidates_per_beam() : request.spec.sampling.num_logprobs;
  const auto drawn = Philox4x32(seed, static_cast<uint64_t>(chunk.end()), kTokenStream);
  SampledToken token = {.token_id = TokenAt(seed, chunk, drawn[0]), .logprob = LogprobOf(drawn[1])};
  const std::vector<int32_t>& tokens = chunk.tokens();
  const int32_t forced =
      request.spec.constraints.ForcedAfter(tokens.size() - request.spec.prompt.size());
  if (forced >= 0) token.token_id = forced;
  token.top = MostProbable(token, num_top, parts_.vocab_size);
  return token;
}

// The log-probabilities of a prompt are made up as those of the output are: they follow from its
// tokens and positions.
std::vector<SampledToken> SimulatedSteps::Score(const Chunk& chunk) const {
  const EngineRequest& request = chunk.sequence->request.spec;
  std::vector<SampledToken> tokens;
  for (int32_t i = 0; i < chunk.num_scored; ++i) {
    const int32_t position = chunk.scored_begin + i;
    const int32_t id = request.prompt[static_cast<size_t>(position)];
    const auto drawn =
        Philox4x32(static_cast<uint64_t>(id), static_cast<uint64_t>(position), kTokenStream);
    tokens.push_back({.token_id = id, .logprob = LogprobOf(drawn[1]), .top = {}});
    tokens.back().top = MostProbable(tokens.back(), request.prompt_logprobs, parts_.vocab_size);
  }
  return tokens;
}

// The token that continues an output. A token that ends the output is given only once the output
// has its length; stop tokens that are drawn before are replaced.
int32_t SimulatedSteps::TokenAt(uint64_t seed, const Chunk& chunk, uint32_t drawn) const {
  const RequestState& request = chunk.sequence->request;
  const std::vector<int32_t>& stops = request.spec.stop_token_ids;
  const auto is_stop = [&stops](int32_t id) { return std::ranges::binary_search(stops, id); };
  const std::vector<int32_t>& eos_ids = parts_.options.eos_token_ids;
  const auto eos = std::ranges::find_if(eos_ids, is_stop);
  const auto length = parts_.options.lengths.LengthOf(seed, request.prompt_tokens());
  const int32_t number = chunk.end() - request.prompt_tokens() + 1;  // 1: the output's first token
  const bool may_end = eos != eos_ids.end() && !request.search;
  const int32_t least = request.spec.constraints.min_tokens + 1;  // first token that may be a stop
  if (may_end && length && number >= std::max(*length, least)) return *eos;
  auto id =
      static_cast<int32_t>((uint64_t{drawn} * static_cast<uint64_t>(parts_.vocab_size)) >> 32);
  for (size_t tries = 0; tries < stops.size() && is_stop(id); ++tries) {
    id = (id + 1) % parts_.vocab_size;
  }
  return id;
}

}  // namespace tandem
