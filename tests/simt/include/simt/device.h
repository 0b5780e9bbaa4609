#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "simt/machine.h"
#include "simt/vector_types.h"

#if defined(__clang__)
#if !__has_feature(address_sanitizer)
#define SIMT_SHARED_SECTION 1
#endif
#endif

// The words of CUDA C++ inside a kernel. Blocks run one at a time, so that a static variable is as
// good as a block's shared memory. clang puts them into a section, which each block finds full of
// NaN; gcc cannot mix those of templates and of functions in one, and AddressSanitizer would not
// watch their ends.
#define __global__
#define __device__
#define __host__
#define __constant__
#if defined(SIMT_SHARED_SECTION)
#define __shared__ static __attribute__((section("simt_shared")))
#else
#define __shared__ static
#endif
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// Set by the machine before a lane runs; constant as far as that lane can tell.
extern const uint3 threadIdx __asm__("simt_thread_idx");
extern const uint3 blockIdx __asm__("simt_block_idx");
extern const dim3 blockDim __asm__("simt_block_dim");
extern const dim3 gridDim __asm__("simt_grid_dim");

inline void __syncthreads() { simt::detail::SyncThreads(); }
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace simt::detail {

template <class To, class From>
To Bits(From from) {
  To to{};
  static_assert(sizeof(To) >= sizeof(From));
  std::memcpy(&to, &from, sizeof(From));
  return to;
}

struct Shuffle {
  uint64_t value;
  int operand;
  int width;
};
struct Vote {
  bool value;
  uint32_t ballot;
};
enum class Direction { kIndex, kXor, kUp, kDown };

extern const Collective kSyncWarp;
extern const Collective kVote;
extern const Collective kShuffle[4];  // by Direction

template <class T>
T ShuffleSync(Direction direction, uint32_t mask, T value, int operand, int width) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  Shuffle shuffle{Bits<uint64_t>(value), operand, width};
  JoinWarp(kShuffle[static_cast<int>(direction)], mask, &shuffle);
  T out;
  std::memcpy(&out, &shuffle.value, sizeof(T));
  return out;
}

}  // namespace simt::detail

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  simt::detail::JoinWarp(simt::detail::kSyncWarp, mask, &mask);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  return simt::detail::ShuffleSync(simt::detail::Direction::kIndex, mask, value, lane, width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  return simt::detail::ShuffleSync(simt::detail::Direction::kXor, mask, value, lanes, width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return simt::detail::ShuffleSync(simt::detail::Direction::kUp, mask, value,
                                   static_cast<int>(delta), width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return simt::detail::ShuffleSync(simt::detail::Direction::kDown, mask, value,
                                   static_cast<int>(delta), width);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  simt::detail::Vote vote{predicate != 0, 0};
  simt::detail::JoinWarp(simt::detail::kVote, mask, &vote);
  return vote.ballot;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask ? 1 : 0;
}

// One lane runs at a time: plain reads and writes are atomic. They return the old value.
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  const T old = *p;
  *p = old + value;
  return old;
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  const T old = *p;
  *p = std::max(old, value);
  return old;
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  const T old = *p;
  *p = std::min(old, value);
  return old;
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  const T old = *p;
  *p = value;
  return old;
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T old = *p;
  if (old == expected) *p = value;
  return old;
}

template <class T>
T __ldg(const T* p) {
  return *p;
}
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

// CUDA's min and max are global functions, of mixed integer types too.
template <class T, class U>
requires std::is_arithmetic_v<T> && std::is_arithmetic_v<U>
constexpr std::common_type_t<T, U> min(T a, U b) {
  using C = std::common_type_t<T, U>;
  return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}
template <class T, class U>
requires std::is_arithmetic_v<T> && std::is_arithmetic_v<U>
constexpr std::common_type_t<T, U> max(T a, U b) {
  using C = std::common_type_t<T, U>;
  return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(b) : static_cast<C>(a);
}
