#include "bench/serving_run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/rng.h"
#include "base/status.h"
#include "kernels/registry.h"
#include "model/checkpoint/checkpoint.h"

namespace tandem {
namespace {

using SteadyTime = std::chrono::steady_clock;

// What came of one request. Written by the engine's thread.
class Answer {
 public:
  class Sink;

  void Submitted() {
    absl::MutexLock lock(&mutex_);
    submitted_ = SteadyTime::now();
  }
  FinishInfo AwaitFinish() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&finished_));
    return finish_;
  }
  std::vector<std::vector<int32_t>> choices() {
    absl::MutexLock lock(&mutex_);
    return choices_;
  }
  double ttft_ms() {
    absl::MutexLock lock(&mutex_);
    return std::chrono::duration<double, std::milli>(first_ - submitted_).count();
  }

 private:
  absl::Mutex mutex_;
  SteadyTime::time_point submitted_ ABSL_GUARDED_BY(mutex_);
  SteadyTime::time_point first_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::vector<int32_t>> choices_ ABSL_GUARDED_BY(mutex_);
  FinishInfo finish_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

class Answer::Sink final : public TokenSink {
 public:
  explicit Sink(Answer& answer) : answer_(answer) {}

  void OnTokens(int32_t index, std::span<const SampledToken> tokens, const StageTimes&) override {
    absl::MutexLock lock(&answer_.mutex_);
    if (answer_.choices_.empty()) answer_.first_ = SteadyTime::now();
    if (answer_.choices_.size() <= static_cast<size_t>(index)) answer_.choices_.resize(index + 1);
    for (const SampledToken& token : tokens) answer_.choices_[index].push_back(token.token_id);
  }
  void OnPromptLogprobs(int32_t, std::span<const SampledToken>) override {}
  void OnBeamStart(const SampledToken&, const StageTimes&) override {}
  void OnChoiceEnd(const ChoiceEnd&) override {}
  void OnFinish(const FinishInfo& info) override {
    absl::MutexLock lock(&answer_.mutex_);
    answer_.finish_ = info;
    answer_.finished_ = true;
  }

 private:
  Answer& answer_;
};

}  // namespace

absl::StatusOr<ServingResult> Serve(const ServingLoad& load) {
  ASSIGN_OR_RETURN(Backend backend, OpenBackend("cpu", {.num_threads = load.threads}));
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(load.model_dir));
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(load.model_dir));
  ASSIGN_OR_RETURN(Backend packing, OpenBackend("cpu", {.num_threads = load.threads}));
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightStore> weights,
                   LoadResidentWeights(config, std::move(checkpoint), *backend.device,
                                       std::move(packing), WeightsAs::kStored, nullptr));
  RETURN_IF_ERROR(weights->Head().status());  // packed last: what follows has the cores to itself
  EngineOptions options = load.options;
  options.layout.num_layers = config.num_layers;
  options.layout.num_kv_heads = config.num_kv_heads;
  options.layout.head_dim = config.head_dim;
  options.max_context_tokens = config.max_position_embeddings;
  options.scheduler.max_waiting = static_cast<int32_t>(load.requests.size());
  SteadyClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   Engine::Create(options, {.model = config,
                                            .device = *backend.device,
                                            .ops = *backend.ops,
                                            .weights = weights.get(),
                                            .clock = clock}));

  std::vector<std::unique_ptr<Answer>> answers;
  ServingResult result;
  const auto began = SteadyTime::now();
  for (const EngineRequest& request : load.requests) {
    Answer& answer = *answers.emplace_back(std::make_unique<Answer>());
    answer.Submitted();
    engine->Submit(request, std::make_unique<Answer::Sink>(answer));
    if (load.arrivals == Arrivals::kOneAtATime) answer.AwaitFinish();
  }
  for (const std::unique_ptr<Answer>& answer : answers) {
    RETURN_IF_ERROR(answer->AwaitFinish().status);
  }
  result.seconds = std::chrono::duration<double>(SteadyTime::now() - began).count();
  for (const std::unique_ptr<Answer>& answer : answers) {
    result.ttft_ms.push_back(answer->ttft_ms());
    for (std::vector<int32_t>& ids : answer->choices()) result.answers.push_back(std::move(ids));
  }
  engine->Shutdown(SteadyTime::now());
  result.stats = engine->stats();
  return result;
}

std::vector<int32_t> RandomTokens(uint64_t seed, int32_t count, int32_t vocab_size) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(UniformAt(seed, static_cast<uint64_t>(i)) * vocab_size));
  }
  return ids;
}

}  // namespace tandem
