// The collectives of a warp: votes, shuffles, ldmatrix and mma, with the fragment layouts of the
// PTX ISA (sections on ldmatrix and on mma.m16n8k16).
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "kernels/cuda/ptx.cuh"
#include "tests/simt/block.h"

namespace simt::detail {
namespace {

void RunSyncWarp(void* const*) {}

void RunVote(void* const* arguments) {
  uint32_t ballot = 0;
  for (int i = 0; i < kWarpSize; ++i) {
    if (arguments[i] != nullptr && static_cast<Vote*>(arguments[i])->value) ballot |= 1u << i;
  }
  for (int i = 0; i < kWarpSize; ++i) {
    if (arguments[i] != nullptr) static_cast<Vote*>(arguments[i])->ballot = ballot;
  }
}

int Source(Direction direction, int lane, const Shuffle& shuffle) {
  const int first = lane & ~(shuffle.width - 1);
  int source = lane;
  switch (direction) {
    case Direction::kIndex:
      return first + (shuffle.operand & (shuffle.width - 1));
    case Direction::kXor:
      source = lane ^ shuffle.operand;
      break;
    case Direction::kUp:
      source = lane - shuffle.operand;
      break;
    case Direction::kDown:
      source = lane + shuffle.operand;
      break;
  }
  const int last = first + shuffle.width;
  const bool inside =
      direction == Direction::kXor ? source < last : source >= first && source < last;
  return inside ? source : lane;
}

// A value taken from a lane that takes no part is undefined: all bits set here.
template <Direction direction>
void RunShuffle(void* const* arguments) {
  uint64_t values[kWarpSize];
  for (int i = 0; i < kWarpSize; ++i) {
    values[i] = arguments[i] != nullptr ? static_cast<Shuffle*>(arguments[i])->value : ~0ull;
  }
  for (int i = 0; i < kWarpSize; ++i) {
    if (arguments[i] == nullptr) continue;
    auto& shuffle = *static_cast<Shuffle*>(arguments[i]);
    if (shuffle.width < 1 || shuffle.width > 32 || (shuffle.width & (shuffle.width - 1)) != 0) {
      Fail("a shuffle of width %d: give a power of two to 32", shuffle.width);
    }
    shuffle.value = values[Source(direction, i, shuffle) & 31];
  }
}

}  // namespace

const Collective kSyncWarp{"__syncwarp", RunSyncWarp};
const Collective kVote{"a vote", RunVote};
const Collective kShuffle[4] = {{"__shfl_sync", RunShuffle<Direction::kIndex>},
                                {"__shfl_xor_sync", RunShuffle<Direction::kXor>},
                                {"__shfl_up_sync", RunShuffle<Direction::kUp>},
                                {"__shfl_down_sync", RunShuffle<Direction::kDown>}};

}  // namespace simt::detail

namespace tandem::ptx::emulated {
namespace {

using simt::detail::Fail;

template <bool transposed>
void RunLoadMatrix(void* const* arguments) {
  for (int m = 0; m < 4; ++m) {
    uint16_t elements[8][8];
    for (int row = 0; row < 8; ++row) {
      const void* from = static_cast<LoadMatrix*>(arguments[8 * m + row])->row;
      if (reinterpret_cast<uintptr_t>(from) % 16 != 0) {
        Fail("ldmatrix: the row of lane %d, %p, is not aligned to 16 bytes", 8 * m + row, from);
      }
      std::memcpy(elements[row], from, sizeof(elements[row]));
    }
    for (int lane = 0; lane < simt::kWarpSize; ++lane) {
      const int row = lane / 4;
      const int column = lane % 4 * 2;
      const uint32_t lo = transposed ? elements[column][row] : elements[row][column];
      const uint32_t hi = transposed ? elements[column + 1][row] : elements[row][column + 1];
      static_cast<LoadMatrix*>(arguments[lane])->out[m] = lo | hi << 16;
    }
  }
}

// A row of B or D, whose columns are computed at once. Written out, since GCC would keep sums in
// memory.
using MmaRow = float __attribute__((vector_size(8 * sizeof(float))));

template <float (*decode)(uint16_t)>
void RunMma(void* const* arguments) {
  float a[16][16];
  MmaRow b[16];
  MmaRow d[16];
  const auto low = [](uint32_t packed) { return decode(static_cast<uint16_t>(packed)); };
  const auto high = [](uint32_t packed) { return decode(static_cast<uint16_t>(packed >> 16)); };
  for (int lane = 0; lane < simt::kWarpSize; ++lane) {
    const Mma& mma = *static_cast<Mma*>(arguments[lane]);
    const int g = lane / 4;
    const int t = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const int row = g + i % 2 * 8;
      const int k = t + i / 2 * 8;
      a[row][k] = low(mma.a[i]);
      a[row][k + 1] = high(mma.a[i]);
      d[g + i / 2 * 8][t + i % 2] = mma.d[i];
    }
    for (int i = 0; i < 2; ++i) {
      b[t + i * 8][g] = low(mma.b[i]);
      b[t + i * 8 + 1][g] = high(mma.b[i]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) d[row] += a[row][k] * b[k];
  }
  for (int lane = 0; lane < simt::kWarpSize; ++lane) {
    float* out = static_cast<Mma*>(arguments[lane])->d;
    for (int i = 0; i < 4; ++i) out[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

}  // namespace

const simt::detail::Collective kLoadMatrix4{"ldmatrix.x4", RunLoadMatrix<false>};
const simt::detail::Collective kLoadMatrix4Trans{"ldmatrix.x4.trans", RunLoadMatrix<true>};
const simt::detail::Collective kMmaBf16{"mma.m16n8k16 (bf16)", RunMma<simt::FromBf16>};
const simt::detail::Collective kMmaF16{"mma.m16n8k16 (f16)", RunMma<simt::FromF16>};

}  // namespace tandem::ptx::emulated
