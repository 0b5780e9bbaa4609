#include "bench/simulator/worker_core.h"

#include <span>
#include <utility>

#include "base/block_hash.h"
#include "base/check.h"
#include "base/hash.h"

namespace tandem::simulator {
namespace {

int32_t NumBlocks(const WorkerModel& model) {
  return static_cast<int32_t>(model.kv_tokens / model.layout.block_tokens);
}

}  // namespace

SchedulerOptions OptionsOf(const WorkerLimits& limits, const WorkerModel& model) {
  SchedulerOptions options = limits.scheduler;
  if (options.max_step_tokens == 0) options.max_step_tokens = model.max_step_tokens;
  if (options.max_sequences == 0) options.max_sequences = model.max_sequences;
  options.total_blocks = NumBlocks(model);
  options.block_tokens = model.layout.block_tokens;
  return options;
}

WorkerCore::WorkerCore(WorkerConfig worker, const WorkerLimits& limits, Timeline& time,
                       Digest& events)
    : timeline(time),
      digest(events),
      config(std::move(worker)),
      options(OptionsOf(limits, *config.model)),
      costs({.prefills = config.role != v1::WORKER_ROLE_DECODE,
             .decodes = config.role != v1::WORKER_ROLE_PREFILL}),
      scheduler(options, learner),
      journal(limits.report_cache && limits.prefix_caching == PrefixCaching::kOn
                  ? std::make_unique<PrefixJournal>()
                  : nullptr),
      store({.total_blocks = NumBlocks(*config.model),
             .block_tokens = config.model->layout.block_tokens,
             .caching = limits.prefix_caching,
             .journal = journal.get()}) {
  const absl::Status set = costs.SetModel(config.model->steps.coefficients(), CostSource::kFile, 0);
  TANDEM_CHECK(set.ok(), set.ToString());
}

void WorkerCore::Note(Happening happening, std::initializer_list<uint64_t> values) {
  const uint64_t id = Hash64(std::as_bytes(std::span(config.name)));
  digest.Add(happening, {id, static_cast<uint64_t>(timeline.elapsed().count())}, values);
}

PrefixKey WorkerCore::KeyOf(std::span<const int32_t> prompt) const {
  PrefixKey key(
      std::make_shared<const PrefixRoot>(PrefixRoot{.hash = PrefixRootHash(prefix_root(), "")}),
      config.model->layout.block_tokens);
  if (store.kv().caching()) key.Extend(prompt);
  return key;
}

std::unique_ptr<SimulatedSequence> WorkerCore::NewSequence(const EngineRequest& request,
                                                           OutputStream stream) {
  return std::make_unique<SimulatedSequence>(
      SimulatedSequence{.id = NewId(),
                        .request = request.id,
                        .prompt_tokens = static_cast<int32_t>(request.prompt.size()),
                        .max_tokens = request.max_tokens,
                        .stream = std::move(stream),
                        .key = KeyOf(request.prompt)});
}

SimulatedSequence& WorkerCore::AddSequence(std::unique_ptr<SimulatedSequence> sequence) {
  requests.emplace(sequence->request, sequence->id);
  return store.Add(std::move(sequence));
}

SimulatedSequence* WorkerCore::Find(RequestId request) const {
  const auto place = requests.find(request);
  return place == requests.end() ? nullptr : store.Find(place->second);
}

void WorkerCore::End(SimulatedSequence& sequence, FinishInfo info) {
  info.stages = sequence.stages;
  info.cached_tokens = sequence.cached_tokens;
  info.preemptions = sequence.preemptions;
  OutputStream stream = std::move(sequence.stream);
  const SequenceId id = sequence.id;
  requests.erase(sequence.request);
  scheduler.Finish(id);
  store.Remove(id);
  if (ended) ended(id);
  ++counts.requests_finished;
  stream.Finish(info);
}

}  // namespace tandem::simulator
