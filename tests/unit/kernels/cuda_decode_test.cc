// Decode attention on devices of other sizes than the machine's: few and many multiprocessors, and
// rings as short as small shared memory makes them, against the kernel that adds in double.

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/ptx.cuh"
#include "tests/simt/device_buffer.h"
#include "tests/simt/simt.h"

namespace tandem::cuda::cuda_decode_test {
namespace {

using simt::DeviceArray;

constexpr int32_t kBlockTokens = 16;
constexpr int32_t kKvHeads = 2;
constexpr size_t kGuardBytes = 256;
constexpr uint8_t kGuard = 0xa5;

struct DecodeCase {
  const char* name;
  int32_t group;
  int32_t head_dim;
  DType kv;
  int32_t window;
  std::vector<int32_t> context_lens;
};

std::vector<DecodeCase> Cases() {
  const std::vector<int32_t> mixed = {1, 0, 700, 64, 1300, 33};
  return {{"grouped heads", 5, 128, DType::kBF16, 0, mixed},
          {"a window", 2, 64, DType::kBF16, 300, mixed},
          {"more heads than a tile has rows", 20, 64, DType::kF16, 0, {200, 0, 90}},
          {"eight bits", 4, 96, DType::kF8E4M3, 0, mixed},
          {"wide heads", 1, 256, DType::kF16, 0, {530, 17}}};
}

struct Outputs {
  std::vector<float> out;
  std::vector<float> lse;
  std::vector<float> block_mass;
};

LaunchTarget Target(int compute_capability, int num_sms, size_t shared_kilobytes) {
  LaunchTarget on;
  on.num_sms = num_sms;
  on.compute_capability = compute_capability;
  on.max_shared_bytes = (shared_kilobytes - 1) << 10;
  on.shared_bytes_per_sm = shared_kilobytes << 10;
  return on;
}

std::vector<LaunchTarget> Targets() {
  return {Target(80, 1, 164), Target(80, 7, 164), Target(89, 3, 100), Target(90, 40, 228)};
}

// The inputs of one case on the device. Blocks lie one behind the other; what no row sees is NaN.
class DecodeProblem {
 public:
  explicit DecodeProblem(const DecodeCase& c)
      : case_(c),
        lens_(c.context_lens),
        query_starts_(Counting(lens_.size() + 1)),
        table_starts_({0}) {
    for (int32_t len : lens_) {
      const int32_t blocks = (len + kBlockTokens - 1) / kBlockTokens;
      max_blocks_ = std::max(max_blocks_, blocks);
      table_starts_.push_back(table_starts_.back() + blocks);
    }
    block_ids_ = Counting(static_cast<size_t>(table_starts_.back()));
    FillPool();
    std::vector<float> q(static_cast<size_t>(num_rows() * c.head_dim));
    for (float& x : q) x = normal_(random_);
    q_ = std::make_unique<DeviceArray<float>>(q);
  }

  // Decode cut for `on`, or the reference kernel.
  Outputs Decode(const LaunchTarget& on, SplitMode splits) { return Run(on, splits, true); }
  Outputs Reference() { return Run(Targets().front(), SplitMode::kBalanced, false); }

 private:
  int64_t num_sequences() const { return static_cast<int64_t>(lens_.size()); }
  int64_t num_heads() const { return int64_t{kKvHeads} * case_.group; }
  int64_t num_rows() const { return num_sequences() * num_heads(); }

  static std::vector<int32_t> Counting(size_t count) {
    std::vector<int32_t> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<int32_t>(i);
    return values;
  }

  void FillPool() {
    const auto blocks = static_cast<int64_t>(block_ids_.size());
    const int64_t token_elements = case_.head_dim;
    const int64_t extent = 2 * kKvHeads * kBlockTokens * token_elements;
    std::vector<float> values(static_cast<size_t>(blocks * extent),
                              std::numeric_limits<float>::quiet_NaN());
    for (size_t s = 0; s < lens_.size(); ++s) {
      const int32_t begin = case_.window > 0 ? std::max(0, lens_[s] - case_.window) : 0;
      for (int32_t key = begin; key < lens_[s]; ++key) {
        const int64_t block = table_starts_[s] + key / kBlockTokens;
        for (int64_t head = 0; head < 2 * kKvHeads; ++head) {
          float* row = &values[static_cast<size_t>(
              block * extent + (head * kBlockTokens + key % kBlockTokens) * token_elements)];
          for (int64_t i = 0; i < token_elements; ++i) row[i] = normal_(random_);
        }
      }
    }
    const int64_t bytes = SizeOf(case_.kv);
    std::vector<uint8_t> packed(values.size() * static_cast<size_t>(bytes));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half =
          case_.kv == DType::kBF16 ? ptx::ToBf16(values[i]) : ptx::ToF16(values[i]);
      const uint8_t eighth = ptx::ToE4m3(values[i]);
      std::memcpy(&packed[i * static_cast<size_t>(bytes)],
                  bytes == 1 ? static_cast<const void*>(&eighth) : &half,
                  static_cast<size_t>(bytes));
    }
    pool_ = std::make_unique<DeviceArray<uint8_t>>(packed);
  }

  AttentionArgs Args(const DeviceArray<float>& out, const DeviceArray<float>& lse,
                     const DeviceArray<float>& mass) const {
    AttentionArgs args;
    args.q = TensorView(q_->get(), DType::kF32, {num_sequences(), num_heads(), case_.head_dim});
    args.pool.data = reinterpret_cast<std::byte*>(pool_->get());
    args.pool.dtype = case_.kv;
    args.pool.num_layers = 1;
    args.pool.num_blocks = static_cast<int32_t>(block_ids_.size());
    args.pool.num_kv_heads = kKvHeads;
    args.pool.block_tokens = kBlockTokens;
    args.pool.head_dim = case_.head_dim;
    args.out = TensorView(out.get(), DType::kF32, {num_sequences(), num_heads(), case_.head_dim});
    args.scale = 1 / std::sqrt(static_cast<float>(case_.head_dim));
    args.window = case_.window;
    args.lse = TensorView(lse.get(), DType::kF32, {num_sequences(), num_heads()});
    args.block_mass = TensorView(mass.get(), DType::kF32, {num_sequences(), kKvHeads, max_blocks_});
    return args;
  }

  // Plan and scratch lie between guards, as large as the launchers said.
  Outputs Run(const LaunchTarget& target, SplitMode splits, bool fast) {
    simt::TestStream stream;
    LaunchTarget on = target;
    on.stream = stream;
    DeviceArray<int32_t> query_starts(query_starts_), lens(lens_), ids(block_ids_),
        starts(table_starts_);
    DeviceArray<float> out(static_cast<size_t>(num_rows() * case_.head_dim));
    DeviceArray<float> lse(static_cast<size_t>(num_rows()));
    DeviceArray<float> mass(static_cast<size_t>(num_sequences() * kKvHeads * max_blocks_));
    AttentionArgs args = Args(out, lse, mass);
    args.splits = splits;
    args.query_starts = {std::span<const int32_t>(query_starts_), query_starts.get()};
    args.context_lens = {std::span<const int32_t>(lens_), lens.get()};
    args.block_tables.ids = {std::span<const int32_t>(block_ids_), ids.get()};
    args.block_tables.starts = {std::span<const int32_t>(table_starts_), starts.get()};

    const DecodeShape shape = {.num_sequences = static_cast<int32_t>(lens_.size()),
                               .num_heads = static_cast<int32_t>(num_heads()),
                               .num_kv_heads = kKvHeads,
                               .head_dim = case_.head_dim,
                               .total_tokens = int64_t{table_starts_.back()} * kBlockTokens,
                               .mass_tokens = int64_t{max_blocks_} * kBlockTokens,
                               .splits = splits};
    const size_t plan_bytes = DecodePlanBytes(on, shape);
    const size_t scratch_bytes = DecodeScratchBytes(on, shape);
    DeviceArray<uint8_t> plan(std::vector<uint8_t>(plan_bytes + kGuardBytes, kGuard));
    DeviceArray<uint8_t> scratch(std::vector<uint8_t>(scratch_bytes + kGuardBytes, kGuard));
    if (fast) {
      EXPECT_EQ(PlanDecode(on, args, plan.get()), cudaSuccess);
      EXPECT_EQ(AttentionDecode(on, args, plan.get(), scratch.get()), cudaSuccess);
    } else {
      EXPECT_EQ(AttentionReference(on, args), cudaSuccess);
    }
    ExpectGuarded(plan.Read(), plan_bytes);
    ExpectGuarded(scratch.Read(), scratch_bytes);
    return {out.Read(), lse.Read(), mass.Read()};
  }

  static void ExpectGuarded(const std::vector<uint8_t>& memory, size_t size) {
    for (size_t i = size; i < memory.size(); ++i) ASSERT_EQ(memory[i], kGuard) << i - size;
  }

  const DecodeCase& case_;
  std::mt19937_64 random_{20251120};
  std::normal_distribution<float> normal_;
  std::vector<int32_t> lens_;
  std::vector<int32_t> query_starts_;
  std::vector<int32_t> table_starts_;
  std::vector<int32_t> block_ids_;
  int32_t max_blocks_ = 1;
  std::unique_ptr<DeviceArray<uint8_t>> pool_;
  std::unique_ptr<DeviceArray<float>> q_;
};

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
