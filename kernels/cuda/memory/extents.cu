#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/memory/extents.h"
#include "kernels/cuda/memory/xxh3.cuh"
#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/ptx.cuh"

// Copies and hashes extents, a thread block per extent at a time: its moving warps copy pieces and
// sum what they hold of each XXH3 block, its last warp chains the sums of the round before. The
// chain is what bounds a single extent: some 30 dependent cycles per KiB (counted, not measured),
// about what one SM moves, so that more SMs for it would gain nothing. Many extents are bounded by
// memory.

namespace tandem::cuda {
namespace {

constexpr uint32_t kWarp = 0xffffffff;
constexpr int kLoadsInFlight = 8;
constexpr uint64_t kVectorBytes = sizeof(uint4);
constexpr uint64_t kPieceBytes = 32 * kLoadsInFlight * kVectorBytes;  // what a warp moves at a time
constexpr int kPieceBlocks = static_cast<int>(kPieceBytes / xxh3::kBlockBytes);
constexpr int kMaxMovingWarps = 16;
constexpr int kMaxThreads = 32 * (kMaxMovingWarps + 1);
// The moving warps of all thread blocks together. A transfer must leave the device to the forward
// passes beside it: a whole thread block takes most of an SM's registers, so that it shares the SM
// with no block of attention. These warps have 2 MiB in flight.
constexpr int kMovingWarps = 512;
// The same where a side is memory of the host. A PCIe bus of 64 GB/s with a round trip of 2 us is
// full with 128 KiB in flight; these warps have 256 KiB, half of which may wait for the chain. More
// of them would only hold more SMs for as long as the bus takes.
constexpr int kHostMovingWarps = 64;
static_assert(kMaxThreads <= 1024 && sizeof(ExtentBatch) <= 4096, "what a launch may have");

// The sums of the XXH3 blocks of two rounds, the current one and the one before.
struct RoundSums {
  uint64_t of[2][kMaxMovingWarps * kPieceBlocks][xxh3::kLanes];
};

template <Access kAccess>
__device__ __forceinline__ uint4 LoadBytes(const std::byte* p) {
  if constexpr (kAccess == Access::kVectors) {
    return ptx::LoadStreaming(reinterpret_cast<const uint4*>(p));
  } else {
    const auto word = [p](int i) { return static_cast<uint32_t>(xxh3::ReadWord<4>(p + 4 * i)); };
    return make_uint4(word(0), word(1), word(2), word(3));
  }
}

template <Access kAccess>
__device__ __forceinline__ void StoreBytes(std::byte* p, uint4 v) {
  if constexpr (kAccess == Access::kVectors) {
    ptx::StoreStreaming(reinterpret_cast<uint4*>(p), v);
  } else {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < static_cast<int>(kVectorBytes); ++i) {
      p[i] = static_cast<std::byte>(words[i / 4] >> (8 * (i % 4)));
    }
  }
}

// Halves the number of sums per lane: lanes that differ in `bit` share them out, each adding up its
// half.
template <int kSums>
__device__ __forceinline__ void ShareOut(uint64_t (&sums)[2 * kPieceBlocks], int lane, int bit) {
  const bool upper = (lane & bit) != 0;
#pragma unroll
  for (int i = 0; i < kSums / 2; ++i) {
    const uint64_t given = upper ? sums[i] : sums[i + kSums / 2];
    const uint64_t kept = upper ? sums[i + kSums / 2] : sums[i];
    sums[i] = kept + __shfl_xor_sync(kWarp, given, bit);
  }
}

// Copies the piece that begins at `at`, but for the last bytes of the extent that fill no vector,
// and sums what its stripes add to the hash. The lanes of a warp hold the two words of a vector
// each: lane l those of accumulators 2(l % 4) and 2(l % 4) + 1, of stripe l / 4 of a half block.
// Only stripes that more bytes follow count: the last one, whole or not, is added at the end.
template <Access kAccess>
__device__ __forceinline__ void MovePiece(const DeviceExtent& extent, uint64_t at, int lane,
                                          uint64_t (*block_sums)[xxh3::kLanes]) {
  const uint64_t first = at + lane * kVectorBytes;
  uint4 held[kLoadsInFlight];
#pragma unroll
  for (int i = 0; i < kLoadsInFlight; ++i) {
    const uint64_t offset = first + i * 32 * kVectorBytes;
    if (offset + kVectorBytes <= extent.bytes) held[i] = LoadBytes<kAccess>(extent.from + offset);
  }
  const int word = lane / 4 + lane % 4 * 2;  // index in the secret, for the first half of a block
  const uint64_t secret[2][2] = {
      {xxh3::kDeviceSecret.of[word], xxh3::kDeviceSecret.of[word + 1]},
      {xxh3::kDeviceSecret.of[word + 8], xxh3::kDeviceSecret.of[word + 9]}};
  uint64_t sums[2 * kPieceBlocks] = {};
#pragma unroll
  for (int i = 0; i < kLoadsInFlight; ++i) {
    const uint64_t offset = first + i * 32 * kVectorBytes;
    if (extent.to != nullptr && offset + kVectorBytes <= extent.bytes) {
      StoreBytes<kAccess>(extent.to + offset, held[i]);
    }
    if ((offset | (xxh3::kStripeBytes - 1)) + 1 < extent.bytes) {
      const uint64_t low = held[i].x | uint64_t{held[i].y} << 32;
      const uint64_t high = held[i].z | uint64_t{held[i].w} << 32;
      sums[i / 2 * 2] += xxh3::Added(low, high, secret[i % 2][0]);
      sums[i / 2 * 2 + 1] += xxh3::Added(high, low, secret[i % 2][1]);
    }
  }
  ShareOut<8>(sums, lane, 16);
  ShareOut<4>(sums, lane, 8);
  ShareOut<2>(sums, lane, 4);
  block_sums[lane / 8][lane % 4 * 2 + lane / 4 % 2] = sums[0];
}

// The accumulators of an extent's hash, in eight lanes; the warp holds them four times.
struct Chain {
  int lane;
  uint64_t scramble_secret;
  uint64_t accumulator;

  __device__ __forceinline__ explicit Chain(int lane_of_warp)
      : lane(lane_of_warp % xxh3::kLanes),
        scramble_secret(xxh3::SecretAt(xxh3::kScrambleSecret + 8 * lane)),
        accumulator(xxh3::kDeviceFirst.of[lane]) {}

  // Adds the sums of `count` XXH3 blocks, of which the first `whole` are full.
  __device__ __forceinline__ void Add(const uint64_t (*sums)[xxh3::kLanes], int count, int whole) {
#pragma unroll 4
    for (int i = 0; i < min(count, whole); ++i) {
      accumulator = xxh3::Scrambled(accumulator + sums[i][lane], scramble_secret);
    }
    if (whole < count) accumulator += sums[whole][lane];
  }

  // The hash of `bytes` bytes at p, once the sums of all their blocks have been added.
  __device__ __forceinline__ uint64_t Finish(const std::byte* p, uint64_t bytes) {
    const uint64_t word = xxh3::ReadWord<8>(p + bytes - xxh3::kStripeBytes + 8 * lane);
    const uint64_t other = __shfl_xor_sync(kWarp, word, 1);
    accumulator += xxh3::Added(word, other, xxh3::SecretAt(xxh3::kLastStripeSecret + 8 * lane));
    return xxh3::Merged(accumulator, lane, bytes);
  }
};

__device__ __forceinline__ void CopyTail(const DeviceExtent& extent, int lane) {
  const auto tail = static_cast<int>(extent.bytes % kVectorBytes);
  if (extent.to == nullptr || lane >= tail) return;
  const uint64_t at = extent.bytes - tail + lane;
  extent.to[at] = extent.from[at];
}

// The bytes to hash: those just written, as this block's threads see them, or the source where
// nothing is written.
__device__ __forceinline__ const std::byte* Written(const DeviceExtent& extent) {
  return extent.to != nullptr ? extent.to : extent.from;
}

// Moves and hashes an extent of more than kShortBytes, by all threads of the block.
template <Access kAccess>
__device__ __forceinline__ void MoveLong(const DeviceExtent& extent, uint64_t* hash,
                                         RoundSums& sums) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int movers = blockDim.x / 32 - 1;
  const uint64_t round_bytes = movers * kPieceBytes;
  const uint64_t rounds = (extent.bytes + round_bytes - 1) / round_bytes;
  const uint64_t round_blocks = round_bytes / xxh3::kBlockBytes;
  const uint64_t whole_blocks = (extent.bytes - 1) / xxh3::kBlockBytes;
  Chain chain(lane);
  if (warp == movers) CopyTail(extent, lane);
  for (uint64_t round = 0; round <= rounds; ++round) {
    const uint64_t at = round * round_bytes + warp * kPieceBytes;
    if (warp < movers) {
      if (at < extent.bytes) {
        MovePiece<kAccess>(extent, at, lane, sums.of[round % 2] + warp * kPieceBlocks);
      }
    } else if (round > 0) {
      const uint64_t left = whole_blocks - (round - 1) * round_blocks;
      chain.Add(sums.of[(round - 1) % 2], static_cast<int>(min(left + 1, round_blocks)),
                static_cast<int>(min(left, round_blocks)));
    }
    __syncthreads();
  }
  if (warp < movers) return;
  const uint64_t result = chain.Finish(Written(extent), extent.bytes);
  if (lane == 0) *hash = result;
}

__device__ __forceinline__ void MoveShort(const DeviceExtent& extent, uint64_t* hash) {
  const auto bytes = static_cast<int>(extent.bytes);
  if (extent.to != nullptr) {
    for (int i = 0; i < bytes; ++i) extent.to[i] = extent.from[i];
  }
  *hash = xxh3::HashShort(Written(extent), bytes);
}

__global__ void __launch_bounds__(kMaxThreads) MoveAndHashExtents(ExtentBatch batch) {
  __shared__ RoundSums sums;
  for (int i = blockIdx.x; i < batch.num_extents; i += gridDim.x) {
    const DeviceExtent extent = batch.extents[i];
    const uint64_t places =
        reinterpret_cast<uint64_t>(extent.from) | reinterpret_cast<uint64_t>(extent.to);
    if (extent.bytes <= xxh3::kShortBytes) {
      if (threadIdx.x == 0) MoveShort(extent, batch.hashes + i);
    } else if (places % kVectorBytes == 0) {
      MoveLong<Access::kVectors>(extent, batch.hashes + i, sums);
    } else {
      MoveLong<Access::kElements>(extent, batch.hashes + i, sums);
    }
  }
}

}  // namespace

cudaError_t MoveAndHash(cudaStream_t stream, const ExtentBatch& batch, ExtentPath path) {
  uint64_t longest = 1;
  for (int i = 0; i < batch.num_extents; ++i) longest = std::max(longest, batch.extents[i].bytes);
  const auto movers = static_cast<int>(
      std::min<uint64_t>((longest + kPieceBytes - 1) / kPieceBytes, kMaxMovingWarps));
  const int warps = path == ExtentPath::kHost ? kHostMovingWarps : kMovingWarps;
  const int blocks = std::min(batch.num_extents, warps / movers);
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(blocks)),
                             .block = dim3(static_cast<unsigned>(32 * (movers + 1)))};
  return Launch(MoveAndHashExtents, shape, stream, batch);
}

}  // namespace tandem::cuda
