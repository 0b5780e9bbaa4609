#include <algorithm>
#include <string>
#include <vector>

#include "tests/conformance/validate_fixture.h"

// Every argument that an op must refuse is refused by its name, and nothing is computed: ops on
// activations and weights, and sampling.

namespace tandem::ops_validate_test {
namespace {

using ops_validate::kNaN;
using ops_validate::ValidateTest;

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
                  a.out = F32({2, 8}).WithRowStride(9);
                }),
                {"out overlaps x"});
  ExpectRefused(refused([&](auto& a) { a.eps = kNaN; }), {"eps is nan"});
  ExpectRefused(refused([&](auto& a) { a.eps = -1; }), {"eps is -1"});
}

TEST_P(ValidateTest, Rope) {
  const std::vector<int32_t> positions = {4, 0};
  const RopeArgs good = {.q = F32({2, 2, 8}),
                         .k = Out({2, 1, 8}),
                         .positions = positions,
                         .cos = Table({5, 4}),
                         .sin = Table({5, 4})};
  EXPECT_TRUE(ops().Rope(stream(), good).ok());
  const auto refused = [&](auto change) {
    RopeArgs args = good;
    change(args);
    return ops().Rope(stream(), args);
  };
  ExpectRefused(refused([&](auto& a) { a.q = F32({2, 2, 7}); }), {"q has head_dim 7", "even"});
  ExpectRefused(refused([&](auto& a) { a.k = Out({3, 1, 8}); }), {"k is f32[3, 1, 8]"});
  ExpectRefused(refused([&](auto& a) { a.k.dtype = DType::kF16; }), {"k is f16[2, 1, 8]", "f32"});
  ExpectRefused(refused([&](auto& a) { a.cos = Out({5, 8}); }), {"cos is f32[5, 8]"});
  ExpectRefused(refused([&](auto& a) { a.sin = Out({4, 4}); }), {"sin is f32[4, 4]", "f32[5, 4]"});
  ExpectRefused(refused([&](auto& a) { a.k_norm = Out({4}); }), {"k_norm is f32[4]", "f32[8]"});
  ExpectRefused(refused([&](auto& a) { a.k = F32({2, 1, 8}); }), {"k overlaps q"});
  ExpectRefused(refused([&](auto& a) { a.norm_eps = kNaN; }), {"norm_eps is nan"});
  const std::vector<int32_t> past = {4, 5}, below = {-1, 0}, three = {0, 1, 2};
  ExpectRefused(refused([&](auto& a) { a.positions = past; }), {"positions[1] is 5", "[0, 5)"});
  ExpectRefused(refused([&](auto& a) { a.positions = below; }), {"positions[0] is -1"});
  ExpectRefused(refused([&](auto& a) { a.positions = three; }), {"positions has 3 entries", "2"});
}

TEST_P(ValidateTest, SlicesOfOneFusedTensorAreApart) {
  const std::vector<int32_t> positions = {1, 0};
  const TensorView fused = F32({2, 3, 8});
  const RopeArgs args = {
      .q = TensorView(fused.data, DType::kF32, {2, 2, 8}).WithRowStride(24),
      .k = TensorView(fused.Row<float>(0) + 16, DType::kF32, {2, 1, 8}).WithRowStride(24),
      .positions = positions,
      .cos = Table({2, 4}),
      .sin = Table({2, 4})};
  EXPECT_TRUE(ops().Rope(stream(), args).ok());
}

// Types that a backend does not compute in, and such that no tensor of activations has.
TEST_P(ValidateTest, ActivationTypes) {
  const std::vector<DType> types = ActivationTypes();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    if (std::find(types.begin(), types.end(), dtype) != types.end()) continue;
    TensorView gate_up = F32({2, 16}), out = Out({2, 8});
    gate_up.dtype = out.dtype = dtype;
    ExpectRefused(ops().SiluMul(stream(), {gate_up, out}), {"out is", "does not compute in"});
  }
  TensorView out = Out({2, 8});
  out.dtype = DType::kI32;
  ExpectRefused(ops().SiluMul(stream(), {F32({2, 16}), out}), {"out is i32"});
  out.dtype = DType::kF8E4M3;
  ExpectRefused(ops().SiluMul(stream(), {F32({2, 16}), out}), {"out is f8e4m3"});
}

TEST_P(ValidateTest, GemmEmbeddingAndPacking) {
  const PackedMatrix packed = {pool_data(), DType::kBF16, 4, 8};
  ExpectRefused(ops().Gemm(stream(), {.x = F32({2, 7}), .weight = packed, .out = Out({2, 4})}),
                {"x is f32[2, 7]", "f32[*, 8]"});
  ExpectRefused(ops().Gemm(stream(), {.x = F32({2, 8}), .weight = packed, .out = F32({2, 4})}),
                {"out overlaps x"});
  ExpectRefused(ops().Gemm(stream(), {.x = F32({2, 8}), .weight = {}, .out = Out({2, 4})}),
                {"weight has no data"});
  ExpectRefused(
      ops().Gemm(stream(),
                 {.x = F32({2, 8}), .weight = packed, .bias = Table({5}), .out = Out({2, 4})}),
      {"bias is f32[5]", "f32[4]"});
  const std::vector<int32_t> ids = {0, 4};
  ExpectRefused(ops().Embedding(stream(), {ids, packed, Out({2, 8})}),
                {"token_ids[1] is 4", "[0, 4)"});
  ExpectRefused(ops().Embedding(stream(), {ids, packed, Out({3, 8})}), {"out is f32[3, 8]"});
  const TensorView sources[] = {TensorView(F32({3, 8}).data, DType::kBF16, {3, 8})};
  ExpectRefused(ops().PackWeight(stream(), packed, sources), {"sources have 3 rows", "4"});
  const TensorView f32[] = {F32({4, 8})};
  ExpectRefused(ops().PackWeight(stream(), packed, f32), {"sources[0] is f32", "bf16"});
}

TEST_P(ValidateTest, SiluMul) {
  ExpectRefused(ops().SiluMul(stream(), {F32({2, 15}), Out({2, 8})}),
                {"gate_up is f32[2, 15]", "f32[2, 16]"});
  ExpectRefused(ops().SiluMul(stream(), {F32({2, 16}), F32({2, 8})}), {"out overlaps gate_up"});
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
  ExpectRefused(refused({.excluded_ids = ids}), {"excluded_ids[0] is 16"});
  ExpectRefused(refused({.allowed_ids = ids}), {"allowed_ids[0] is 16"});
  ExpectRefused(refused({.given_token = 16}), {"given_token is 16"});
  const std::vector<TokenBias> outside = {{0, 1.0f}, {16, 1.0f}};
  const std::vector<TokenBias> large = {{0, 101.0f}};
  const std::vector<TokenBias> not_a_number = {{0, kNaN}};
  const std::vector<TokenBias> many(kMaxLogitBiases + 1);
  ExpectRefused(refused({.biases = outside}), {"biases names token 16"});
  ExpectRefused(refused({.biases = large}), {"biases is 101"});
  ExpectRefused(refused({.biases = not_a_number}), {"biases is nan"});
  ExpectRefused(refused({.biases = many}), {"1025 biases", "1024"});
  std::vector<SampledToken> out(1);
  const SampleRow rows[2] = {};
  ExpectRefused(ops().Sample(stream(), {F32({2, 16}), rows, out}), {"out has 1 entries"});
}

TANDEM_INSTANTIATE_OPS_TEST(ValidateTest);

}  // namespace
}  // namespace tandem::ops_validate_test
