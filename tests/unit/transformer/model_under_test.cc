#include "tests/unit/transformer/model_under_test.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"

namespace tandem {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return std::move(value).value();  // ends the test program when there is none
}

}  // namespace

std::unique_ptr<ModelUnderTest> ModelUnderTest::Load(const TestModelOptions& options) {
  auto model = std::make_unique<ModelUnderTest>();
  model->layer_stored_ = options.layer_stored;
  model->config_ = OrDie(LoadModelConfig(options.directory));
  const ModelConfig& config = model->config_;
  model->backend_ = OrDie(OpenBackend(options.device, {.num_threads = options.num_threads}));
  Device& device = *model->backend_.device;
  model->stream_ = OrDie(device.NewStream());
  Backend packing = OrDie(OpenBackend(options.device, {.num_threads = options.num_threads}));
  model->weights_ =
      OrDie(LoadResidentWeights(config, OrDie(Checkpoint::Open(options.directory)), device,
                                std::move(packing), options.weights_as, options.progress));
  model->transformer_ =
      OrDie(Transformer::Create(config, *model->weights_, device, *model->backend_.ops,
                                {.max_tokens = options.max_tokens,
                                 .max_logit_rows = 16,
                                 .max_sequences = 64,
                                 .max_blocks_per_sequence = options.max_tokens,
                                 .max_context_tokens = options.max_tokens,
                                 .splits = options.splits}));

  KvPoolView& pool = model->pool_;
  pool = {.dtype = options.kv_dtype,
          .num_layers = config.num_layers,
          .num_blocks = 2 * options.max_tokens / kBlockTokens + 16,
          .num_kv_heads = config.num_kv_heads,
          .block_tokens = kBlockTokens,
          .head_dim = config.head_dim};
  const auto bytes = static_cast<size_t>(pool.ExtentBytes() * pool.num_layers * pool.num_blocks);
  model->pool_memory_ = OrDie(device.Allocate(bytes));
  pool.data = model->pool_memory_.data();
  model->Poison(model->pool_memory_.bytes());
  return model;
}

void ModelUnderTest::Poison(std::span<std::byte> memory) {
  const std::vector<std::byte> nan(memory.size(), std::byte{0xff});  // in every dtype
  ASSERT_EQ(stream_->Copy(memory, nan), absl::OkStatus());
  ASSERT_EQ(stream_->Synchronize(), absl::OkStatus());
}

std::vector<std::byte> ModelUnderTest::Download(std::span<const std::byte> memory) const {
  std::vector<std::byte> bytes(memory.size());
  EXPECT_EQ(stream_->Copy(bytes, memory), absl::OkStatus());
  EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
  return bytes;
}

TestSequence ModelUnderTest::NewSequence(std::vector<int32_t> ids) {
  TestSequence sequence{.ids = std::move(ids)};
  constexpr size_t kRoomToGrow = 96;
  const size_t blocks = (sequence.ids.size() + kRoomToGrow) / kBlockTokens + 1;
  for (size_t i = 0; i < blocks; ++i) sequence.blocks.push_back(used_blocks_++);
  std::reverse(sequence.blocks.begin(), sequence.blocks.end());
  EXPECT_LE(used_blocks_, pool_.num_blocks);
  return sequence;
}

std::vector<std::vector<float>> ModelUnderTest::Step(const std::vector<TestWork>& chunks,
                                                     const std::vector<TestWork>& decodes) {
  std::vector<TestWork> all = chunks;
  all.insert(all.end(), decodes.begin(), decodes.end());
  std::vector<int32_t> ids, positions, starts = {0}, lens, rows, tables, table_starts = {0};
  std::vector<int64_t> slots;
  for (size_t s = 0; s < all.size(); ++s) {
    TestSequence& sequence = *all[s].sequence;
    tables.insert(tables.end(), sequence.blocks.begin(), sequence.blocks.end());
    // An entry past a sequence's own blocks must not be read: it names no block.
    tables.push_back(pool_.num_blocks + 1000);
    table_starts.push_back(static_cast<int32_t>(tables.size()));
    for (int32_t i = 0; i < all[s].rows; ++i, ++sequence.computed) {
      const int32_t position = sequence.computed;
      const int32_t slot = position - sequence.evicted;
      ids.push_back(sequence.ids.at(position));
      positions.push_back(position);
      slots.push_back(int64_t{sequence.blocks.at(slot / kBlockTokens)} * kBlockTokens +
                      slot % kBlockTokens);
    }
    starts.push_back(static_cast<int32_t>(ids.size()));
    lens.push_back(sequence.computed - sequence.evicted);
    rows.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
  const ForwardBatch batch{.token_ids = ids,
                           .positions = positions,
                           .slots = slots,
                           .query_starts = starts,
                           .context_lens = lens,
                           .block_tables = {.ids = tables, .starts = table_starts},
                           .num_decodes = static_cast<int32_t>(decodes.size()),
                           .logit_rows = rows,
                           .masses = masses_};
  const TensorView logits = OrDie(Forward(batch, layer_stored_));
  std::vector<std::vector<float>> result;
  for (int64_t r = 0; r < logits.rows(); ++r) result.push_back(Row(logits, r));
  return result;
}

std::vector<float> ModelUnderTest::Prefill(TestSequence& sequence, int32_t chunk) {
  std::vector<float> logits;
  const auto total = static_cast<int32_t>(sequence.ids.size());
  while (sequence.computed < total) {
    logits = Step({{&sequence, std::min(chunk, total - sequence.computed)}}).front();
  }
  return logits;
}

std::vector<float> ModelUnderTest::DecodeGreedily(TestSequence& sequence,
                                                  const std::vector<float>& logits) {
  sequence.ids.push_back(ArgMax(logits));
  return Step({}, {{&sequence, 1}}).front();
}

std::byte* ModelUnderTest::RowOf(const TestSequence& sequence, int32_t layer, int32_t part,
                                 int32_t head, int32_t slot) const {
  const int64_t row = int64_t{pool_.head_dim} * SizeOf(pool_.dtype);
  const int64_t index = (int64_t{part} * pool_.num_kv_heads + head) * kBlockTokens;
  return pool_.Extent(layer, sequence.blocks.at(slot / kBlockTokens)) +
         (index + slot % kBlockTokens) * row;
}

void ModelUnderTest::Evict(TestSequence& sequence, const std::vector<std::vector<int32_t>>& kept) {
  const auto row = static_cast<size_t>(pool_.head_dim * SizeOf(pool_.dtype));
  for (int32_t layer = 0; layer < pool_.num_layers; ++layer) {
    for (int32_t part = 0; part < 2; ++part) {
      for (int32_t head = 0; head < pool_.num_kv_heads; ++head) {
        const std::vector<int32_t>& tokens = kept.at(layer * pool_.num_kv_heads + head);
        std::vector<std::byte> rows;
        for (const int32_t token : tokens) {
          const std::byte* from = RowOf(sequence, layer, part, head, token);
          rows.insert(rows.end(), from, from + row);
        }
        for (size_t i = 0; i < tokens.size(); ++i) {
          std::memcpy(RowOf(sequence, layer, part, head, static_cast<int32_t>(i)),
                      rows.data() + i * row, row);
        }
      }
    }
  }
  sequence.evicted = sequence.computed - static_cast<int32_t>(kept.front().size());
}

std::vector<std::vector<float>> ModelUnderTest::MassesOf(TestSequence& sequence, int32_t rows,
                                                         float decay, int32_t chunk) {
  const auto total = static_cast<int32_t>(sequence.ids.size());
  std::vector<std::vector<float>> sums(pool_.num_layers * pool_.num_kv_heads,
                                       std::vector<float>(total));
  while (sequence.computed < total) {
    const int32_t end = std::min(total, sequence.computed + chunk);
    const size_t floats = static_cast<size_t>(pool_.num_layers) * pool_.num_kv_heads * end;
    const DeviceBuffer out = OrDie(backend_.device->AllocateHost(floats * sizeof(float)));
    const std::span<float> masses(reinterpret_cast<float*>(out.data()), floats);
    const MassRequest request = {
        .sequence = 0,
        .last_rows = std::min(end - sequence.computed, rows - (total - end)),
        .rows_behind = total - end,
        .decay = decay,
        .out = masses};
    if (request.last_rows > 0) masses_ = {&request, 1};
    Step({{&sequence, end - sequence.computed}});
    EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
    if (!masses_.empty()) {
      for (size_t i = 0; i < floats; ++i) sums[i / end][i % end] += masses[i];
    }
    masses_ = {};
  }
  return sums;
}

absl::StatusOr<TensorView> ModelUnderTest::Forward(const ForwardBatch& batch,
                                                   const LayerStored& layer_stored) {
  return transformer_->Forward(*stream_, batch, pool_, layer_stored);
}

std::vector<float> ModelUnderTest::Row(const TensorView& logits, int64_t row) const {
  const auto width = static_cast<size_t>(config_.vocab_size);
  const auto bytes = Download(std::as_bytes(std::span(logits.Row<float>(row), width)));
  std::vector<float> values(width);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<std::byte> ModelUnderTest::ExtentOf(int32_t layer, int32_t block) const {
  return Download({pool_.Extent(layer, block), static_cast<size_t>(pool_.ExtentBytes())});
}

std::vector<std::byte> ModelUnderTest::KvOf(const TestSequence& sequence, int32_t layer,
                                            int32_t tokens) const {
  std::vector<std::byte> bytes;
  for (int32_t t = 0; t < tokens; ++t) {
    const std::vector<std::byte> extent = ExtentOf(layer, sequence.blocks[t / kBlockTokens]);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (int32_t head = 0; head < pool_.num_kv_heads; ++head) {
        const std::byte* at = extent.data() + pool_.RowAt(side, head, t % kBlockTokens);
        bytes.insert(bytes.end(), at, at + pool_.RowBytes(side));
      }
    }
  }
  return bytes;
}

int32_t ArgMax(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace tandem
