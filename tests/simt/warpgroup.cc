// wgmma: 64 x N products of 128 threads, by the descriptors and fragments of the PTX ISA (section
// on asynchronous warpgroup matrix instructions). A block computes its products either when they
// are started or when they are waited for, by the seed: what is overwritten too early shows in the
// one, what is written too late in the other.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/simt/block.h"
#include "tests/simt/shared_memory.h"
#include "tests/simt/warpgroup_state.h"

namespace simt {
namespace {

constexpr float kPoison = std::bit_cast<float>(0xffffffffu);

// Where the 16-byte chunks of an operand lie: `chunk` along the contiguous dimension, `row` across.
struct Layout {
  size_t start;
  size_t leading;
  size_t stride;
  int swizzle_bytes;  // 16: none
  bool k_major;

  size_t Offset(int chunk, int row) const {
    const size_t chunks = static_cast<size_t>(swizzle_bytes) / 16;
    const auto c = static_cast<size_t>(chunk);
    const auto group = static_cast<size_t>(row / 8);
    const size_t in_group = static_cast<size_t>(row % 8) * static_cast<size_t>(swizzle_bytes);
    if (chunks == 1) {
      return start + in_group +
             (k_major ? c * leading + group * stride : c * stride + group * leading);
    }
    const size_t across = k_major ? c * 16 : c % chunks * 16 + c / chunks * leading;
    const size_t offset = start + across + in_group + group * stride;
    return offset ^ (offset >> 7 & (chunks - 1)) << 4;
  }
};

Layout Decode(uint64_t descriptor, bool k_major) {
  constexpr int kSwizzleBytes[] = {16, 128, 64, 32};
  return {(descriptor & 0x3fff) << 4, (descriptor >> 16 & 0x3fff) << 4,
          (descriptor >> 32 & 0x3fff) << 4, kSwizzleBytes[descriptor >> 62], k_major};
}

using DecodeFloat = float (*)(uint16_t);

// out[row * row_stride + k * k_stride] for `rows` rows (of A, or columns of B) of 16.
struct Target {
  float* out;
  int row_stride;
  int k_stride;
};

void Load(const Layout& layout, int rows, DecodeFloat decode, const Target& target) {
  const int num_chunks = layout.k_major ? kProductDepth / 8 : rows / 8;
  const int num_across = layout.k_major ? rows : kProductDepth;
  for (int across = 0; across < num_across; ++across) {
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      uint16_t elements[8];
      std::memcpy(elements, SharedBytes(layout.Offset(chunk, across), 16, "wgmma"), 16);
      for (int i = 0; i < 8; ++i) {
        const int row = layout.k_major ? across : chunk * 8 + i;
        const int k = layout.k_major ? chunk * 8 + i : across;
        target.out[row * target.row_stride + k * target.k_stride] = decode(elements[i]);
      }
    }
  }
}

// A from registers: each warp holds its 16 rows as the A fragment of mma.m16n8k16.
void LoadRegisters(const StartedProduct& started, float* out) {
  for (int thread = 0; thread < kWarpgroupSize; ++thread) {
    for (int i = 0; i < 4; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8;
      const int k = thread % 4 * 2 + i / 2 * 8;
      const uint32_t packed = started.a[thread][i];
      out[row * kProductDepth + k] = started.product.decode(static_cast<uint16_t>(packed));
      out[row * kProductDepth + k + 1] =
          started.product.decode(static_cast<uint16_t>(packed >> 16));
    }
  }
}

void Compute(const StartedProduct& started, Accumulator& accumulator) {
  static float a[kProductRows * kProductDepth];
  static float b[kProductDepth * 256];  // [k, n]
  const detail::WarpgroupProduct& product = started.product;
  const int n = product.n;
  if (product.a != nullptr) {
    LoadRegisters(started, a);
  } else {
    Load(Decode(product.a_descriptor, true), kProductRows, product.decode, {a, kProductDepth, 1});
  }
  Load(Decode(product.b_descriptor, !product.trans_b), n, product.decode, {b, 1, n});
  for (int row = 0; row < kProductRows; ++row) {
    float* sum = &accumulator.values[static_cast<size_t>(row) * n];
    if (!product.accumulate) std::fill(sum, sum + n, 0.0f);
    for (int k = 0; k < kProductDepth; ++k) {
      const float x = a[row * kProductDepth + k];
      for (int column = 0; column < n; ++column) sum[column] += x * b[k * n + column];
    }
  }
}

// The place in [64, n] of register i of a thread.
size_t Place(int thread, int i, int n) {
  const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
  return static_cast<size_t>(row) * n + i / 4 * 8 + thread % 4 * 2 + i % 2;
}

int FindAccumulator(WarpgroupState& group, detail::WarpgroupProduct* const* products) {
  for (size_t i = 0; i < group.accumulators.size(); ++i) {
    if (group.accumulators[i].d[0] == products[0]->d) return static_cast<int>(i);
  }
  if (!group.fenced) {
    detail::Fail("wgmma into registers that no wgmma.fence has made ready");
  }
  Accumulator fresh;
  fresh.n = products[0]->n;
  fresh.values.resize(static_cast<size_t>(kProductRows) * fresh.n);
  for (int thread = 0; thread < kWarpgroupSize; ++thread) {
    float* d = products[thread]->d;
    fresh.d[thread] = d;
    for (int i = 0; i < fresh.n / 2; ++i) fresh.values[Place(thread, i, fresh.n)] = d[i];
    std::fill(d, d + fresh.n / 2, kPoison);
  }
  group.accumulators.push_back(std::move(fresh));
  return static_cast<int>(group.accumulators.size()) - 1;
}

void ComputeThrough(WarpgroupState& group, int last_group) {
  size_t done = 0;
  while (done < group.started.size() && group.started_groups[done] <= last_group) {
    const StartedProduct& started = group.started[done++];
    Compute(started, group.accumulators[started.accumulator]);
  }
  group.started.erase(group.started.begin(), group.started.begin() + static_cast<long>(done));
  group.started_groups.erase(group.started_groups.begin(),
                             group.started_groups.begin() + static_cast<long>(done));
}

WarpgroupState& Group() { return block.warpgroups[block.running->index / kWarpgroupSize]; }

void RunStart(void* const* arguments) {
  auto* const* products = reinterpret_cast<detail::WarpgroupProduct* const*>(arguments);
  const detail::WarpgroupProduct& first = *products[0];
  StartedProduct started{first, {}, 0};
  for (int thread = 0; thread < kWarpgroupSize; ++thread) {
    const detail::WarpgroupProduct& other = *products[thread];
    if (other.a_descriptor != first.a_descriptor || other.b_descriptor != first.b_descriptor ||
        other.n != first.n || other.trans_b != first.trans_b ||
        other.accumulate != first.accumulate || other.decode != first.decode) {
      detail::Fail("wgmma: thread %d of the warpgroup gives other operands than thread 0", thread);
    }
    if (other.a != nullptr) std::copy(other.a, other.a + 4, started.a[thread].begin());
  }
  WarpgroupState& group = Group();
  started.accumulator = FindAccumulator(group, products);
  Accumulator& accumulator = group.accumulators[started.accumulator];
  if (accumulator.n != first.n) {
    detail::Fail("wgmma: n %d into the registers of one of n %d", first.n, accumulator.n);
  }
  accumulator.last_group = group.open_group;
  group.started.push_back(started);
  group.started_groups.push_back(group.open_group);
  if (block.eager_products) ComputeThrough(group, group.open_group);
}

void RunFence(void* const*) { Group().fenced = true; }
void RunCommit(void* const*) { ++Group().open_group; }

void RunWait(void* const* arguments) {
  const int pending = *static_cast<int*>(arguments[0]);
  WarpgroupState& group = Group();
  group.fenced = false;
  const int last_group = group.open_group - 1 - pending;
  ComputeThrough(group, last_group);
  for (size_t i = 0; i < group.accumulators.size();) {
    Accumulator& accumulator = group.accumulators[i];
    if (accumulator.last_group > last_group) {
      ++i;
      continue;
    }
    for (int thread = 0; thread < kWarpgroupSize; ++thread) {
      for (int j = 0; j < accumulator.n / 2; ++j) {
        accumulator.d[thread][j] = accumulator.values[Place(thread, j, accumulator.n)];
      }
    }
    for (StartedProduct& started : group.started) {
      if (started.accumulator > static_cast<int>(i)) --started.accumulator;
    }
    group.accumulators.erase(group.accumulators.begin() + static_cast<long>(i));
  }
}

void RunSetMaxRegisters(void* const* arguments) {
  const int first = *static_cast<int*>(arguments[0]);
  for (int thread = 1; thread < kWarpgroupSize; ++thread) {
    const int other = *static_cast<int*>(arguments[thread]);
    if (other != first) detail::Fail("setmaxnreg %d and %d in one warpgroup", first, other);
  }
}

const detail::Collective kStart{"wgmma", RunStart};
const detail::Collective kFence{"wgmma.fence", RunFence};
const detail::Collective kCommit{"wgmma.commit_group", RunCommit};
const detail::Collective kWait{"wgmma.wait_group", RunWait};
const detail::Collective kSetMaxRegisters{"setmaxnreg", RunSetMaxRegisters};

}  // namespace

void WarpgroupState::Reset() {
  at = nullptr;
  arrived = 0;
  fenced = false;
  open_group = 0;
  started.clear();
  started_groups.clear();
  accumulators.clear();
}

namespace detail {

void StartProduct(WarpgroupProduct product) { JoinWarpgroup(kStart, &product); }
void FenceProducts() { JoinWarpgroup(kFence, nullptr); }
void CommitProducts() { JoinWarpgroup(kCommit, nullptr); }
void WaitProducts(int pending) { JoinWarpgroup(kWait, &pending); }
void SetMaxRegisters(int count) { JoinWarpgroup(kSetMaxRegisters, &count); }

}  // namespace detail
}  // namespace simt
