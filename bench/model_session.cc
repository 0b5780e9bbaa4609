#include "bench/model_session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "base/status.h"
#include "model/checkpoint/checkpoint.h"

namespace tandem {
namespace {

constexpr int32_t kBlockTokens = 16;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t CountParameters(const Checkpoint& checkpoint) {
  int64_t count = 0;
  for (const std::string& name : checkpoint.Names()) {
    const auto tensor = checkpoint.Find(name);
    if (tensor.ok()) {
      count += static_cast<int64_t>(tensor->bytes.size()) / SizeOf(tensor->dtype);
    }
  }
  return count;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSession>> ModelSession::Open(const Options& options) {
  auto session = std::make_unique<ModelSession>();
  ModelSession& s = *session;
  s.options_ = options;
  ASSIGN_OR_RETURN(s.config_, LoadModelConfig(options.directory));
  ASSIGN_OR_RETURN(Backend backend,
                   OpenBackend(options.device, {.num_threads = options.num_threads}));
  s.device_ = std::move(backend.device);
  s.ops_ = std::make_unique<ProfilingOps>(std::move(backend.ops));
  ASSIGN_OR_RETURN(s.stream_, s.device_->NewStream());

  const auto start = std::chrono::steady_clock::now();
  {
    ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(options.directory));
    s.parameters_ = CountParameters(*checkpoint);
    ASSIGN_OR_RETURN(Backend packing,
                     OpenBackend(options.device, {.num_threads = options.num_threads}));
    ASSIGN_OR_RETURN(s.weights_,
                     LoadResidentWeights(s.config_, std::move(checkpoint), *s.device_,
                                         std::move(packing), options.weights_as, nullptr));
    RETURN_IF_ERROR(s.weights_->Head().status());  // the last group: all is packed
  }
  s.load_seconds_ = SecondsSince(start);

  ASSIGN_OR_RETURN(
      s.transformer_,
      Transformer::Create(s.config_, *s.weights_, *s.device_, *s.ops_,
                          {.max_tokens = std::max(options.chunk_tokens, options.max_batch),
                           .max_logit_rows = options.max_batch,
                           .max_sequences = options.max_batch,
                           .max_blocks_per_sequence = s.BlocksPerSequence(),
                           .max_context_tokens = options.max_context_tokens + 1}));
  RETURN_IF_ERROR(s.AllocatePool());
  std::mt19937 random(1);
  s.ids_.resize(options.max_batch);
  for (std::vector<int32_t>& ids : s.ids_) {
    for (int32_t i = 0; i <= options.max_context_tokens; ++i) {
      ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(s.config_.vocab_size)));
    }
  }
  return session;
}

int32_t ModelSession::BlocksPerSequence() const {
  return (options_.max_context_tokens + kBlockTokens - 1) / kBlockTokens;
}

absl::Status ModelSession::AllocatePool() {
  pool_ = {.dtype = options_.kv_dtype,
           .num_layers = config_.num_layers,
           .num_blocks = options_.max_batch * BlocksPerSequence(),
           .num_kv_heads = config_.num_kv_heads,
           .block_tokens = kBlockTokens,
           .head_dim = config_.head_dim};
  const int64_t bytes = pool_.ExtentBytes() * pool_.num_layers * pool_.num_blocks;
  ASSIGN_OR_RETURN(pool_memory_, device_->Allocate(static_cast<size_t>(bytes)));
  pool_.data = pool_memory_.data();
  // Touched once, so that no case pays for the first use of its pages.
  std::memset(pool_.data, 0, static_cast<size_t>(bytes));
  tables_.resize(pool_.num_blocks);
  std::iota(tables_.begin(), tables_.end(), 0);
  return absl::OkStatus();
}

absl::Status ModelSession::Step(std::span<const Span> spans, Wanted wanted) {
  std::vector<int32_t> ids, positions, starts = {0}, lens, tables, table_starts = {0}, rows;
  std::vector<int64_t> slots;
  const int32_t blocks = BlocksPerSequence();
  bool decodes = true;
  for (const Span& span : spans) {
    const int32_t* table = tables_.data() + int64_t{span.sequence} * blocks;
    for (int32_t position = span.begin; position < span.end; ++position) {
      ids.push_back(ids_[span.sequence][position]);
      positions.push_back(position);
      slots.push_back(int64_t{table[position / kBlockTokens]} * kBlockTokens +
                      position % kBlockTokens);
    }
    starts.push_back(static_cast<int32_t>(ids.size()));
    lens.push_back(span.end);
    tables.insert(tables.end(), table, table + blocks);
    table_starts.push_back(static_cast<int32_t>(tables.size()));
    if (wanted == Wanted::kTokens) rows.push_back(static_cast<int32_t>(ids.size()) - 1);
    decodes = decodes && span.end - span.begin == 1;
  }
  const auto count = static_cast<int32_t>(spans.size());
  const ForwardBatch batch{.token_ids = ids,
                           .positions = positions,
                           .slots = slots,
                           .query_starts = starts,
                           .context_lens = lens,
                           .block_tables = {.ids = tables, .starts = table_starts},
                           .num_decodes = decodes ? count : 0,
                           .logit_rows = rows};
  ASSIGN_OR_RETURN(const TensorView logits, transformer_->Forward(*stream_, batch, pool_, nullptr));
  if (wanted == Wanted::kNothing) return absl::OkStatus();
  std::vector<SampleRow> sample_rows(spans.size(), SampleRow{.num_logprobs = -1});
  std::vector<SampledToken> sampled(spans.size());
  RETURN_IF_ERROR(ops_->Sample(*stream_, {.logits = logits, .rows = sample_rows, .out = sampled}));
  for (int32_t i = 0; i < count; ++i) {
    ids_[spans[i].sequence][spans[i].end] = sampled[i].token_id;
  }
  return absl::OkStatus();
}

absl::Status ModelSession::PrefillSequence(int32_t tokens) {
  for (int32_t begin = 0; begin < tokens; begin += options_.chunk_tokens) {
    const Span chunk{0, begin, std::min(tokens, begin + options_.chunk_tokens)};
    RETURN_IF_ERROR(Step({&chunk, 1}, chunk.end == tokens ? Wanted::kTokens : Wanted::kNothing));
  }
  return absl::OkStatus();
}

absl::StatusOr<BenchRun> ModelSession::Prefill(int32_t tokens) {
  ops_->Take();
  const auto start = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(PrefillSequence(tokens));
  return BenchRun{.seconds = SecondsSince(start),
                  .tokens = tokens,
                  .steps = (tokens + options_.chunk_tokens - 1) / options_.chunk_tokens,
                  .profile = ops_->Take()};
}

absl::StatusOr<BenchRun> ModelSession::Prefill(std::span<const int32_t> ids) {
  if (ids.empty() || std::ssize(ids) > options_.max_context_tokens) {
    return InvalidArgument("{} tokens to prefill: there is room for {}", ids.size(),
                           options_.max_context_tokens);
  }
  std::ranges::copy(ids, ids_.front().begin());
  return Prefill(static_cast<int32_t>(ids.size()));
}

std::span<const std::byte> ModelSession::Extent(int32_t layer, int32_t block) const {
  return {pool_.Extent(layer, tables_[static_cast<size_t>(block)]),
          static_cast<size_t>(pool_.ExtentBytes())};
}

absl::StatusOr<BenchRun> ModelSession::Decode(int32_t batch, int32_t depth, int32_t steps) {
  RETURN_IF_ERROR(PrefillSequence(depth));
  std::vector<BlockPair> copies;
  for (int32_t sequence = 1; sequence < batch; ++sequence) {
    for (int32_t block = 0; block * kBlockTokens < depth; ++block) {
      copies.push_back({block, sequence * BlocksPerSequence() + block});
    }
  }
  RETURN_IF_ERROR(ops_->CopyBlocks(*stream_, {.pool = pool_, .pairs = copies}));

  ops_->Take();
  std::vector<Span> spans(batch);
  const auto start = std::chrono::steady_clock::now();
  for (int32_t step = 0; step < steps; ++step) {
    for (int32_t i = 0; i < batch; ++i) spans[i] = {i, depth + step, depth + step + 1};
    RETURN_IF_ERROR(Step(spans, Wanted::kTokens));
  }
  return BenchRun{.seconds = SecondsSince(start),
                  .tokens = int64_t{batch} * steps,
                  .steps = steps,
                  .profile = ops_->Take()};
}

}  // namespace tandem
