#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/xxh3.h"

// XXH3 64-bit (kernels/xxh3.h) in the parts that threads share. Sums within a block are taken in
// any order; blocks form a chain. A lane may call all of these alone, except Merged.
namespace tandem::cuda::xxh3 {

using namespace tandem::xxh3;

static __constant__ const Words kDeviceFirst = kFirst;
static __constant__ const Words kDeviceSecret = kSecret;

// The 8 bytes of the secret from byte `at` on.
__device__ __forceinline__ uint64_t SecretAt(int at) {
  const int bits = 8 * (at % 8);
  const uint64_t low = kDeviceSecret.of[at / 8];
  return bits == 0 ? low : low >> bits | kDeviceSecret.of[at / 8 + 1] << (64 - bits);
}

// ---- words ----

// The kBytes bytes at p, which may lie anywhere, as a little-endian number.
template <int kBytes>
__device__ __forceinline__ uint64_t ReadWord(const std::byte* p) {
  uint64_t word = 0;
#pragma unroll
  for (int i = 0; i < kBytes; ++i) word |= static_cast<uint64_t>(p[i]) << (8 * i);
  return word;
}

__device__ __forceinline__ uint64_t RotateLeft(uint64_t x, int bits) {
  return x << bits | x >> (64 - bits);
}

__device__ __forceinline__ uint64_t SwapBytes(uint64_t x) {
  x = (x & 0x00ff00ff00ff00ff) << 8 | (x >> 8 & 0x00ff00ff00ff00ff);
  x = (x & 0x0000ffff0000ffff) << 16 | (x >> 16 & 0x0000ffff0000ffff);
  return x << 32 | x >> 32;
}

// The upper and the lower half of the 128-bit product of a and b, combined by XOR.
__device__ __forceinline__ uint64_t FoldedProduct(uint64_t a, uint64_t b) {
  return __umul64hi(a, b) ^ a * b;
}

// The product of the upper and the lower 32 bits of x.
__device__ __forceinline__ uint64_t HalvesProduct(uint64_t x) {
  return (x & 0xffffffff) * (x >> 32);
}

__device__ __forceinline__ uint64_t Avalanche(uint64_t x) {
  x ^= x >> 37;
  x *= kAvalanche;
  return x ^ x >> 32;
}

// ---- hashes of up to 240 bytes ----

__device__ __forceinline__ uint64_t Hash0To3(const std::byte* p, int n) {
  uint64_t x = SecretAt(56) ^ SecretAt(64);
  if (n > 0) {
    const auto byte = [p](int i) { return static_cast<uint64_t>(p[i]); };
    const uint64_t key = (SecretAt(0) ^ SecretAt(0) >> 32) & 0xffffffff;
    x = key ^ (byte(0) << 16 | byte(n / 2) << 24 | byte(n - 1) | static_cast<uint64_t>(n) << 8);
  }
  x ^= x >> 33;
  x *= kPrime64_2;
  x ^= x >> 29;
  x *= kPrime64_3;
  return x ^ x >> 32;
}

__device__ __forceinline__ uint64_t Hash4To8(const std::byte* p, int n) {
  const uint64_t input = ReadWord<4>(p + n - 4) + (ReadWord<4>(p) << 32);
  uint64_t x = input ^ SecretAt(8) ^ SecretAt(16);
  x ^= RotateLeft(x, 49) ^ RotateLeft(x, 24);
  x *= 0x9fb21c651e98df25;
  x ^= (x >> 35) + static_cast<uint64_t>(n);
  x *= 0x9fb21c651e98df25;
  return x ^ x >> 28;
}

__device__ __forceinline__ uint64_t Hash9To16(const std::byte* p, int n) {
  const uint64_t low = ReadWord<8>(p) ^ SecretAt(24) ^ SecretAt(32);
  const uint64_t high = ReadWord<8>(p + n - 8) ^ SecretAt(40) ^ SecretAt(48);
  return Avalanche(static_cast<uint64_t>(n) + SwapBytes(low) + high + FoldedProduct(low, high));
}

__device__ __forceinline__ uint64_t Mix16(const std::byte* p, int secret) {
  return FoldedProduct(ReadWord<8>(p) ^ SecretAt(secret),
                       ReadWord<8>(p + 8) ^ SecretAt(secret + 8));
}

// The hash of 17 to 128 bytes, mixed in pairs of 16 from both ends inwards.
__device__ __forceinline__ uint64_t Hash17To128(const std::byte* p, int n) {
  uint64_t x = static_cast<uint64_t>(n) * kPrime64_1;
  for (int i = (n - 1) / 32; i >= 0; --i) {
    x += Mix16(p + 16 * i, 32 * i) + Mix16(p + n - 16 * (i + 1), 32 * i + 16);
  }
  return Avalanche(x);
}

__device__ __forceinline__ uint64_t Hash129To240(const std::byte* p, int n) {
  uint64_t x = static_cast<uint64_t>(n) * kPrime64_1;
  for (int i = 0; i < 8; ++i) x += Mix16(p + 16 * i, 16 * i);
  x = Avalanche(x);
  for (int i = 8; i < n / 16; ++i) x += Mix16(p + 16 * i, 16 * (i - 8) + 3);
  return Avalanche(x + Mix16(p + n - 16, 119));
}

// The hash of n bytes, n <= kShortBytes.
__device__ __forceinline__ uint64_t HashShort(const std::byte* p, int n) {
  if (n <= 3) return Hash0To3(p, n);
  if (n <= 8) return Hash4To8(p, n);
  if (n <= 16) return Hash9To16(p, n);
  return n <= 128 ? Hash17To128(p, n) : Hash129To240(p, n);
}

// ---- hashes of more than 240 bytes: the steps of accumulator `lane` ----

// What a stripe adds to the lane's accumulator: `word` is the lane's word of the stripe, `other`
// that of lane ^ 1.
__device__ __forceinline__ uint64_t Added(uint64_t word, uint64_t other, uint64_t secret) {
  return other + HalvesProduct(word ^ secret);
}

// The accumulator after the scrambling at the end of a block; `secret` is SecretAt(kScrambleSecret
// + 8 * lane).
__device__ __forceinline__ uint64_t Scrambled(uint64_t accumulator, uint64_t secret) {
  return (accumulator ^ accumulator >> 47 ^ secret) * kPrime32_1;
}

// The hash of `bytes` bytes from its accumulators, one in each lane of every group of 8. Warp.
__device__ __forceinline__ uint64_t Merged(uint64_t accumulator, int lane, uint64_t bytes) {
  constexpr uint32_t kWarp = 0xffffffff;
  const uint64_t keyed = accumulator ^ SecretAt(kMergeSecret + 8 * lane);
  uint64_t sum = FoldedProduct(keyed, __shfl_xor_sync(kWarp, keyed, 1));
  sum += __shfl_xor_sync(kWarp, sum, 2);
  sum += __shfl_xor_sync(kWarp, sum, 4);
  return Avalanche(sum + bytes * kPrime64_1);
}

}  // namespace tandem::cuda::xxh3
