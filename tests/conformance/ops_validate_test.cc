#include <functional>
#include <limits>
#include <string>

#include "tests/support/ops_fixture.h"

// Every argument that an op must refuse is refused by its name, and nothing is computed.

namespace tandem {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class ValidateTest : public OpsTest {
 protected:
  // `refused` must give INVALID_ARGUMENT with every one of `words` in its message.
  static void ExpectRefused(const absl::Status& refused, std::initializer_list<const char*> words) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    for (const char* word : words) {
      EXPECT_NE(refused.ToString().find(word), std::string::npos) << word << " in: " << refused;
    }
  }

  TensorView F32(std::initializer_list<int64_t> shape) { return Tensor(memory_, shape); }
  // Apart from what F32 gives.
  TensorView Out(std::initializer_list<int64_t> shape) { return Tensor(other_, shape); }
  KvPoolView Pool() {
    return {reinterpret_cast<std::byte*>(pool_.data()), DType::kBF16, 2, 4, 2, 8, 16};
  }

  std::vector<float> memory_ = std::vector<float>(4096);
  std::vector<float> other_ = std::vector<float>(4096);
  std::vector<float> pool_ = std::vector<float>(4096);
};

TEST_P(ValidateTest, RmsNorm) {
  const RmsNormArgs good = {F32({2, 8}), Out({8}), Out({2, 8}), 1e-5f};
  EXPECT_TRUE(ops().RmsNorm(stream(), good).ok());
  const auto refused = [&](auto change) {
    RmsNormArgs args = good;
    change(args);
    return ops().RmsNorm(stream(), args);
  };
  ExpectRefused(refused([&](auto& a) { a.x.dtype = DType::kF16; }),
                {"x is f16[2, 8]", "f32[*, *]"});
  ExpectRefused(refused([&](auto& a) { a.x.data = nullptr; }), {"x has no data"});
  ExpectRefused(refused([&](auto& a) { a.weight = Out({9}); }), {"weight is f32[9]", "f32[8]"});
  ExpectRefused(refused([&](auto& a) { a.out = Out({3, 8}); }), {"out is f32[3, 8]"});
  ExpectRefused(refused([&](auto& a) { a.x.row_stride = 7; }), {"x has a row stride of 7"});
  ExpectRefused(refused([&](auto& a) {
                  a.out = Tensor(memory_, {2, 8}).WithRowStride(9);
                }),
                {"out overlaps x"});
  ExpectRefused(refused([&](auto& a) { a.eps = kNaN; }), {"eps is nan"});
  ExpectRefused(refused([&](auto& a) { a.eps = -1; }), {"eps is -1"});
}

TEST_P(ValidateTest, Rope) {
  const RopeArgs good = {
      F32({2, 2, 8}), Out({2, 1, 8}), Tensor(pool_, {2, 4}), Tensor(pool_, {2, 4}), {}, {}, 1e-6f};
  EXPECT_TRUE(ops().Rope(stream(), good).ok());
  const auto refused = [&](auto change) {
    RopeArgs args = good;
    change(args);
    return ops().Rope(stream(), args);
  };
  ExpectRefused(refused([&](auto& a) { a.q = F32({2, 2, 7}); }), {"q has head_dim 7", "even"});
  ExpectRefused(refused([&](auto& a) { a.k = Out({3, 1, 8}); }), {"k is f32[3, 1, 8]"});
  ExpectRefused(refused([&](auto& a) { a.cos = Out({2, 8}); }), {"cos is f32[2, 8]"});
  ExpectRefused(refused([&](auto& a) { a.sin = Out({1, 4}); }), {"sin is f32[1, 4]"});
  ExpectRefused(refused([&](auto& a) { a.k_norm = Out({4}); }), {"k_norm is f32[4]", "f32[8]"});
  ExpectRefused(refused([&](auto& a) { a.k = F32({2, 1, 8}); }), {"k overlaps q"});
}

TEST_P(ValidateTest, SlicesOfOneFusedTensorAreApart) {
  const RopeArgs fused = {F32({2, 2, 8}).WithRowStride(24),
                          TensorView(memory_.data() + 16, DType::kF32, {2, 1, 8}).WithRowStride(24),
                          Tensor(pool_, {2, 4}),
                          Tensor(pool_, {2, 4}),
                          {},
                          {},
                          1e-6f};
  EXPECT_TRUE(ops().Rope(stream(), fused).ok());
}

TEST_P(ValidateTest, GemmEmbeddingAndPacking) {
  const PackedMatrix packed = {reinterpret_cast<std::byte*>(pool_.data()), DType::kBF16, 4, 8};
  ExpectRefused(ops().Gemm(stream(), {.x = F32({2, 7}), .weight = packed, .out = Out({2, 4})}),
                {"x is f32[2, 7]", "f32[*, 8]"});
  ExpectRefused(ops().Gemm(stream(), {.x = F32({2, 8}), .weight = packed, .out = F32({2, 4})}),
                {"out overlaps x"});
  ExpectRefused(ops().Gemm(stream(), {.x = F32({2, 8}), .weight = {}, .out = Out({2, 4})}),
                {"weight has no data"});
  ExpectRefused(
      ops().Gemm(
          stream(),
          {.x = F32({2, 8}), .weight = packed, .bias = Tensor(pool_, {5}), .out = Out({2, 4})}),
      {"bias is f32[5]", "f32[4]"});
  const std::vector<int32_t> ids = {0, 4};
  ExpectRefused(ops().Embedding(stream(), {ids, packed, Out({2, 8})}),
                {"token_ids[1] is 4", "[0, 4)"});
  ExpectRefused(ops().Embedding(stream(), {ids, packed, Out({3, 8})}), {"out is f32[3, 8]"});
  const TensorView sources[] = {TensorView(memory_.data(), DType::kBF16, {3, 8})};
  ExpectRefused(ops().PackWeight(stream(), packed, sources), {"sources have 3 rows", "4"});
  const TensorView f32[] = {F32({4, 8})};
  ExpectRefused(ops().PackWeight(stream(), packed, f32), {"sources[0] is f32", "bf16"});
}

TEST_P(ValidateTest, SiluMul) {
  ExpectRefused(ops().SiluMul(stream(), {F32({2, 15}), Out({2, 8})}),
                {"gate_up is f32[2, 15]", "f32[2, 16]"});
  ExpectRefused(ops().SiluMul(stream(), {F32({2, 16}), F32({2, 8})}), {"out overlaps gate_up"});
}

TEST_P(ValidateTest, StoreKv) {
  const std::vector<int64_t> slots = {31, -1};
  const StoreKvArgs good = {F32({2, 2, 16}), Out({2, 2, 16}), slots, Pool(), 1};
  EXPECT_TRUE(ops().StoreKv(stream(), good).ok());
  const auto refused = [&](auto change) {
    StoreKvArgs args = good;
    change(args);
    return ops().StoreKv(stream(), args);
  };
  const std::vector<int64_t> past = {31, 32};
  ExpectRefused(refused([&](auto& a) { a.slots = past; }), {"slots[1] is 32", "[0, 32)"});
  ExpectRefused(refused([&](auto& a) { a.layer = 2; }), {"layer is 2", "[0, 2)"});
  ExpectRefused(refused([&](auto& a) { a.v = Out({2, 1, 16}); }), {"v is f32[2, 1, 16]"});
  ExpectRefused(refused([&](auto& a) { a.pool.data = nullptr; }), {"pool has no data"});
  ExpectRefused(refused([&](auto& a) { a.pool.block_tokens = 12; }), {"block_tokens 12"});
  ExpectRefused(refused([&](auto& a) { a.pool.head_dim = 20; }), {"head_dim 20"});
  ExpectRefused(refused([&](auto& a) { a.pool.dtype = DType::kI32; }), {"pool is of i32"});
  ExpectRefused(refused([&](auto& a) { a.pool.num_blocks = 0; }), {"0 blocks"});
}

TEST_P(ValidateTest, Attention) {
  const std::vector<int32_t> starts = {0, 1, 2};
  const std::vector<int32_t> contexts = {9, 1};
  std::vector<int32_t> tables = {3, 1, 0, 77};
  const AttentionArgs good = {.q = F32({2, 4, 16}),
                              .pool = Pool(),
                              .layer = 0,
                              .query_starts = starts,
                              .context_lens = contexts,
                              .block_tables = TensorView(tables.data(), DType::kI32, {2, 2}),
                              .out = Out({2, 4, 16}),
                              .scale = 0.25f};
  EXPECT_TRUE(ops().AttentionPrefill(stream(), good).ok());
  EXPECT_TRUE(ops().AttentionDecode(stream(), good).ok());
  const auto refused = [&](auto change) {
    AttentionArgs args = good;
    change(args);
    return ops().AttentionPrefill(stream(), args);
  };
  const std::vector<int32_t> two_rows = {0, 2, 2}, short_starts = {0, 2}, falling = {0, 3, 2},
                             wrong_end = {0, 1, 3}, too_long = {17, 1}, too_short = {9, 0};
  ExpectRefused(refused([&](auto& a) { a.query_starts = short_starts; }), {"query_starts has 2"});
  ExpectRefused(refused([&](auto& a) { a.query_starts = falling; }), {"sequence 1 -1 rows"});
  ExpectRefused(refused([&](auto& a) { a.query_starts = wrong_end; }), {"query_starts", "0 to 3"});
  ExpectRefused(refused([&](auto& a) { a.context_lens = too_long; }),
                {"context_lens[0] is 17", "16"});
  ExpectRefused(refused([&](auto& a) { a.context_lens = too_short; }), {"context_lens[1] is 0"});
  ExpectRefused(refused([&](auto& a) { a.q = F32({2, 3, 16}); }), {"q has 3 heads", "2 KV heads"});
  ExpectRefused(refused([&](auto& a) { a.q = F32({2, 4, 8}); }), {"q is f32[2, 4, 8]"});
  ExpectRefused(refused([&](auto& a) { a.out = F32({2, 4, 16}); }), {"out overlaps q"});
  ExpectRefused(refused([&](auto& a) { a.layer = -1; }), {"layer is -1"});
  ExpectRefused(refused([&](auto& a) { a.scale = kNaN; }), {"scale is nan"});
  ExpectRefused(refused([&](auto& a) { a.window = -1; }), {"window is -1"});
  ExpectRefused(refused([&](auto& a) { a.block_tables.dtype = DType::kI64; }),
                {"block_tables is i64"});
  AttentionArgs two = good;
  two.query_starts = two_rows;
  ExpectRefused(ops().AttentionDecode(stream(), two), {"sequence 0 2 rows", "must be 1"});
  tables[1] = 4;
  ExpectRefused(refused([](auto&) {}), {"block_tables[0][1] is 4", "[0, 4)"});
  tables[1] = -1;
  ExpectRefused(refused([](auto&) {}), {"block_tables[0][1] is -1"});
}

TEST_P(ValidateTest, Blocks) {
  const auto copy = [&](std::vector<std::pair<int32_t, int32_t>> pairs) {
    return ops().CopyBlocks(stream(), {Pool(), pairs});
  };
  ExpectRefused(copy({{0, 4}}), {"pairs[0].to is 4"});
  ExpectRefused(copy({{0, 1}, {-1, 2}}), {"pairs[1].from is -1"});
  ExpectRefused(copy({{0, 1}, {1, 2}}), {"read and write block 1"});
  ExpectRefused(copy({{0, 1}, {2, 1}}), {"write block 1 twice"});
  const LayerBlock items[] = {{0, 0}, {2, 0}};
  std::vector<std::byte> staging(static_cast<size_t>(2 * Pool().ExtentBytes()));
  ExpectRefused(ops().GatherBlocks(stream(), {Pool(), items, staging}), {"items[1] is layer 2"});
  const std::span<const LayerBlock> one(items, 1);
  ExpectRefused(ops().ScatterBlocks(stream(), {Pool(), one, staging}), {"staging has"});
  const std::span<std::byte> inside(Pool().data + 8, static_cast<size_t>(Pool().ExtentBytes()));
  ExpectRefused(ops().GatherBlocks(stream(), {Pool(), one, inside}), {"staging overlaps the pool"});
}

TEST_P(ValidateTest, Sample) {
  const std::vector<int32_t> ids = {16};
  const auto refused = [&](const SampleRow& row) {
    const SampleRow rows[] = {{}, row};
    std::vector<SampledToken> out(2);
    return ops().Sample(stream(), {F32({2, 16}), rows, out});
  };
  EXPECT_TRUE(refused({}).ok());
  ExpectRefused(refused({.temperature = -1}), {"rows[1].temperature is -1"});
  ExpectRefused(refused({.temperature = kNaN}), {"rows[1].temperature is nan"});
  ExpectRefused(refused({.top_k = -1}), {"rows[1].top_k is -1"});
  ExpectRefused(refused({.top_p = 0}), {"rows[1].top_p is 0", "(0, 1]"});
  ExpectRefused(refused({.top_p = 1.5f}), {"rows[1].top_p is 1.5"});
  ExpectRefused(refused({.min_p = 1}), {"rows[1].min_p is 1"});
  ExpectRefused(refused({.repetition_penalty = 0}), {"repetition_penalty is 0"});
  ExpectRefused(refused({.presence_penalty = kNaN}), {"presence_penalty is nan"});
  ExpectRefused(refused({.frequency_penalty = kNaN}), {"frequency_penalty is nan"});
  ExpectRefused(refused({.position = -1}), {"position is -1"});
  ExpectRefused(refused({.num_logprobs = 17}), {"num_logprobs is 17", "16"});
  ExpectRefused(refused({.presence_penalty = 1, .output_ids = ids}), {"output_ids[0] is 16"});
  std::vector<SampledToken> out(1);
  const SampleRow rows[2] = {};
  ExpectRefused(ops().Sample(stream(), {F32({2, 16}), rows, out}), {"out has 1 entries"});
}

TANDEM_INSTANTIATE_OPS_TEST(ValidateTest);

}  // namespace
}  // namespace tandem
