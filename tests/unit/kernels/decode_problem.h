#pragma once

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
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/ptx.cuh"
#include "tests/simt/device_buffer.h"
#include "tests/simt/simt.h"

// Cases of decode attention, and devices of other sizes than the machine's on which they are computed.

namespace tandem::cuda::decode_problem {

using simt::DeviceArray;

inline constexpr int32_t kBlockTokens = 16;
inline constexpr int32_t kKvHeads = 2;
inline constexpr size_t kGuardBytes = 256;
inline constexpr uint8_t kGuard = 0xa5;

struct DecodeCase {
  const char* name;
  int32_t group;
  int32_t head_dim;
  DType kv;
  int32_t window;
  std::vector<int32_t> context_lens;
};

inline std::vector<DecodeCase> Cases() {
  const std::vector<int32_t> mixed = {1, 0, 700, 64, 1300, 33};
  return {{"grouped heads", 5, 128, DType::kBF16, 0, mixed},
          {"a window", 2, 64, DType::kBF16, 300, mixed},
          {"more heads than a tile has rows", 20, 64, DType::kF16, 0, {200, 0, 90}},
          {"eight bits", 4, 96, DType::kF8E4M3, 0, mixed},
          {"wide heads", 1, 256, DType::kF16, 0, {530, 17}}};
}

// What decode writes, read back.
struct Outputs {
  std::vector<float> out;
  std::vector<float> lse;
  std::vector<float> block_mass;
};

// A device of that many multiprocessors, each with so much shared memory.
inline LaunchTarget Target(int compute_capability, int num_sms, size_t shared_kilobytes) {
  LaunchTarget on;
  on.num_sms = num_sms;
  on.compute_capability = compute_capability;
  on.max_shared_bytes = (shared_kilobytes - 1) << 10;
  on.shared_bytes_per_sm = shared_kilobytes << 10;
  return on;
}

inline std::vector<LaunchTarget> Targets() {
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

}  // namespace tandem::cuda::decode_problem
