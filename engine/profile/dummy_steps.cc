#include "engine/profile/dummy_steps.h"

#include <chrono>
#include <cstddef>
#include <random>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

int32_t BlocksFor(int32_t tokens, int32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

// Writes small numbers into all blocks of the table. Memory that was never written to may be a
// single page of zeros, or hold NaN. Other than that, the content of the KV does not change the
// time of a step.
absl::Status Fill(const BlockTable& table, KvStore& store, Stream& stream) {
  constexpr std::byte kSmallNumber{0x3c};  // a pair of them is an F16 or BF16 of at most 1.1
  const std::vector<std::byte> extent(static_cast<size_t>(store.layout().ExtentBytes()),
                                      kSmallNumber);
  for (int32_t block = 0; block < table.num_blocks(); ++block) {
    for (int32_t layer = 0; layer < store.layout().num_layers; ++layer) {
      RETURN_IF_ERROR(stream.Copy(store.Extent(layer, table.block(block).id()), extent));
    }
  }
  return stream.Synchronize();
}

}  // namespace

int64_t DummySteps::Blocks(const StepLimits& limits, int32_t block_tokens) {
  return BlocksFor(limits.max_context_tokens + limits.max_step_tokens, block_tokens) +
         int64_t{limits.max_sequences} * BlocksFor(limits.max_context_tokens, block_tokens);
}

absl::StatusOr<std::unique_ptr<DummySteps>> DummySteps::Create(const StepLimits& limits,
                                                               const Parts& parts) {
  std::unique_ptr<DummySteps> steps(new DummySteps(parts.computation));
  EngineRequest request;
  request.prompt = {0};
  request.max_tokens = 1;
  steps->request_ = std::make_unique<RequestState>(std::move(request));
  const int32_t context = limits.max_context_tokens;
  RETURN_IF_ERROR(steps->AddSequence(context + limits.max_step_tokens, parts));
  for (int32_t i = 0; i < limits.max_sequences; ++i) {
    RETURN_IF_ERROR(steps->AddSequence(context, parts));
  }
  return steps;
}

absl::Status DummySteps::AddSequence(int32_t tokens, const Parts& parts) {
  KvStore& store = parts.store;
  const uint64_t id = sequences_.size() + 1;
  std::mt19937 random(static_cast<uint32_t>(id));
  auto sequence = std::make_unique<Sequence>(SequenceId(id), *request_, store.NewKey(""));
  Row& row = sequence->rows.emplace_back();
  for (int32_t position = 0; position < tokens; ++position) {
    row.tokens.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(parts.vocab_size)));
  }
  BlockTable& table = sequence->tables.emplace_back(store.layout().block_tokens);
  RETURN_IF_ERROR(store.Reserve(table, tokens));
  RETURN_IF_ERROR(Fill(table, store, parts.stream));
  sequences_.push_back(std::move(sequence));
  return absl::OkStatus();
}

absl::StatusOr<Duration> DummySteps::Run(const StepShape& shape) {
  chunks_.clear();
  if (shape.prefill_tokens > 0) {
    chunks_.push_back({.sequence = sequences_.front().get(),
                       .begin = shape.cached_tokens,
                       .count = shape.prefill_tokens,
                       .samples = 1});
  }
  for (int32_t i = 1; i <= shape.sequences; ++i) {
    chunks_.push_back({.sequence = sequences_[static_cast<size_t>(i)].get(),
                       .begin = shape.context_tokens - 1,
                       .count = 1,
                       .samples = 1,
                       .decode = true});
  }
  const auto began = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(computation_.Forward(chunks_, shape.sequences, not_told_));
  if (shape.prefill_tokens > 0) RETURN_IF_ERROR(computation_.Await());
  for (const absl::StatusOr<SampledToken>& token : computation_.Sample(chunks_)) {
    RETURN_IF_ERROR(token.status());
  }
  return std::chrono::steady_clock::now() - began;
}

}  // namespace tandem
