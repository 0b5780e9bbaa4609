// Decode attention on devices of other sizes than the machine's: few and many multiprocessors, and
// rings as short as small shared memory makes them, against the kernel that adds in double.

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/launchers.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/simt.h"
#include "tests/unit/kernels/decode_problem.h"

namespace tandem::cuda::cuda_decode_test {
namespace {

using decode_problem::Cases;
using decode_problem::DecodeCase;
using decode_problem::DecodeProblem;
using decode_problem::kBlockTokens;
using decode_problem::kKvHeads;
using decode_problem::Outputs;
using decode_problem::Target;
using decode_problem::Targets;
using simt::DeviceArray;

double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(actual[i]) - expected[i];
    error += difference * difference;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(error / norm);
}

// Q is rounded to the type that is multiplied, which moves the logits by up to 2^-9 of them.
void ExpectNear(const Outputs& actual, const Outputs& expected, DType kv) {
  EXPECT_LE(RelativeError(actual.out, expected.out), kv == DType::kBF16 ? 4e-3 : 6e-4);
  EXPECT_LE(RelativeError(actual.block_mass, expected.block_mass), 5e-3);
  ASSERT_EQ(actual.lse.size(), expected.lse.size());
  for (size_t i = 0; i < expected.lse.size(); ++i) {
    if (std::isinf(expected.lse[i])) {
      EXPECT_EQ(actual.lse[i], expected.lse[i]);
    } else {
      EXPECT_NEAR(actual.lse[i], expected.lse[i], 1e-2);
    }
  }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(AttentionDecode, EqualsTheReferenceHoweverManyPartsItIsCutInto) {
  for (const DecodeCase& c : Cases()) {
    DecodeProblem problem(c);
    const Outputs expected = problem.Reference();
    for (const LaunchTarget& on : Targets()) {
      SCOPED_TRACE(std::string(c.name) + ", " + std::to_string(on.num_sms) + " multiprocessors");
      ExpectNear(problem.Decode(on, SplitMode::kBalanced), expected, c.kv);
    }
  }
}

TEST(AttentionDecode, FixedSplitsGiveTheSameBitsOnEveryDevice) {
  for (const DecodeCase& c : Cases()) {
    DecodeProblem problem(c);
    const Outputs expected = problem.Decode(Targets().front(), SplitMode::kFixed);
    ExpectNear(expected, problem.Reference(), c.kv);
    for (const LaunchTarget& on : Targets()) {
      SCOPED_TRACE(std::string(c.name) + ", " + std::to_string(on.num_sms) + " multiprocessors");
      const Outputs actual = problem.Decode(on, SplitMode::kFixed);
      EXPECT_TRUE(SameBits(actual.out, expected.out));
      EXPECT_TRUE(SameBits(actual.lse, expected.lse));
      EXPECT_TRUE(SameBits(actual.block_mass, expected.block_mass));
    }
  }
}

// Up to more sequences than the planner has threads, and than its shared memory holds.
TEST(PlanDecode, PlansOnTheDeviceAsTheRuleOnTheHost) {
  std::mt19937_64 random(7);
  for (int32_t num_sequences : {1, 3, 1023, 1024, 1025, 2500, 4000}) {
    for (SplitMode splits : {SplitMode::kBalanced, SplitMode::kFixed}) {
      SCOPED_TRACE(num_sequences);
      std::vector<int32_t> lens(static_cast<size_t>(num_sequences));
      for (int32_t& len : lens) len = std::uniform_int_distribution<int32_t>(0, 3000)(random);
      simt::TestStream stream;
      LaunchTarget on = Target(90, 40, 228);
      on.stream = stream;
      DeviceArray<int32_t> device_lens(lens);
      AttentionArgs args;
      args.q.shape = {num_sequences, 8, 128};
      args.pool.num_kv_heads = kKvHeads;
      args.pool.block_tokens = kBlockTokens;
      args.pool.head_dim = 128;
      args.context_lens = {std::span<const int32_t>(lens), device_lens.get()};
      args.window = num_sequences % 2 == 0 ? 700 : 0;
      args.splits = splits;
      const DecodeShape shape = {.num_sequences = num_sequences};
      DeviceArray<uint8_t> plan(DecodePlanBytes(on, shape));
      ASSERT_EQ(PlanDecode(on, args, plan.get()), cudaSuccess);
      std::vector<uint8_t> memory = plan.Read();

      const int32_t num_parts = PlanDecodeLaunch(on, args.pool).num_parts;
      const SplitRule rule = MakeSplitRule(splits, kKvHeads, num_parts, args.window);
      std::vector<int64_t> starts(lens.size() + 1);
      FillSplitStarts(rule, lens.data(), num_sequences, starts.data());
      const SplitLine line = {starts.data(), lens.data(), num_sequences};
      const DecodePlan made = DecodePlanAt(memory.data(), num_parts);
      ASSERT_EQ(std::memcmp(made.starts, starts.data(), starts.size() * sizeof(int64_t)), 0);
      for (int32_t part = 0; part < num_parts; ++part) {
        const SplitPart expected = MakeSplitPart(rule, line, part);
        ASSERT_EQ(std::memcmp(&made.parts[part], &expected, sizeof(expected)), 0) << part;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cuda::cuda_decode_test
