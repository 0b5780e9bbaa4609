#include "kernels/cpu/copy_and_hash.h"

#include <cstring>

#include "base/hash.h"
#include "kernels/xxh3.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/copy_and_hash.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

uint64_t CopyLong(const std::byte* from, std::byte* to, size_t bytes) {
  std::memcpy(to, from, bytes);
  return Hash64({to, bytes});
}

#else

using LanesTag = hn::CappedTag<uint64_t, xxh3::kLanes>;
using HalvesTag = hn::Repartition<uint32_t, LanesTag>;
using LanesVector = hn::Vec<LanesTag>;

constexpr size_t kVectorLanes = hn::MaxLanes(LanesTag());
constexpr size_t kVectors = xxh3::kLanes / kVectorLanes;
constexpr LanesTag kLanesTag;
constexpr HalvesTag kHalvesTag;

enum class Store : uint8_t { kNone, kCached, kPastCaches };
// The least size that is stored past the caches: smaller copies do not gain by it.
constexpr size_t kPastCachesFrom = 8192;
constexpr size_t kCacheLineBytes = 64;

HWY_INLINE uint64_t* LanesAt(void* p, size_t vector) {
  return static_cast<uint64_t*>(p) + vector * kVectorLanes;
}
HWY_INLINE LanesVector LoadLanes(const void* p, size_t vector) {
  return hn::LoadU(kLanesTag, static_cast<const uint64_t*>(p) + vector * kVectorLanes);
}

HWY_INLINE LanesVector SecretLanes(int at, size_t vector) {
  return LoadLanes(reinterpret_cast<const std::byte*>(xxh3::kSecret.of) + at, vector);
}

// The product of the lower halves of each lane of a and b.
HWY_INLINE LanesVector LowProduct(LanesVector a, LanesVector b) {
  return hn::MulEven(hn::BitCast(kHalvesTag, a), hn::BitCast(kHalvesTag, b));
}

struct Accumulators {
  LanesVector of[kVectors];

  HWY_INLINE Accumulators() {
    for (size_t i = 0; i < kVectors; ++i) of[i] = LoadLanes(xxh3::kFirst.of, i);
  }

  // Adds the stripe at `from`, which is also stored at `to` unless nothing is stored.
  template <Store kStore>
  HWY_INLINE void AddStripe(const std::byte* from, std::byte* to, int secret) {
    for (size_t i = 0; i < kVectors; ++i) {
      const LanesVector words = LoadLanes(from, i);
      if constexpr (kStore == Store::kCached) hn::StoreU(words, kLanesTag, LanesAt(to, i));
      if constexpr (kStore == Store::kPastCaches) hn::Stream(words, kLanesTag, LanesAt(to, i));
      const LanesVector keyed = hn::Xor(words, SecretLanes(secret, i));
      const LanesVector product = LowProduct(keyed, hn::ShiftRight<32>(keyed));
      of[i] = hn::Add(of[i], hn::Add(product, hn::Shuffle01(words)));
    }
  }

  // The scrambling of the accumulators at the end of a block.
  HWY_INLINE void Scramble() {
    const LanesVector prime = hn::Set(kLanesTag, xxh3::kPrime32_1);
    for (size_t i = 0; i < kVectors; ++i) {
      const LanesVector mixed = hn::Xor(of[i], hn::ShiftRight<47>(of[i]));
      const LanesVector keyed = hn::Xor(mixed, SecretLanes(xxh3::kScrambleSecret, i));
      const LanesVector high = LowProduct(hn::ShiftRight<32>(keyed), prime);
      of[i] = hn::Add(LowProduct(keyed, prime), hn::ShiftLeft<32>(high));
    }
  }
};

template <Store kStore>
HWY_INLINE void CopyBlocks(const std::byte* from, std::byte* to, size_t num_blocks,
                           Accumulators& sums) {
  for (size_t block = 0; block < num_blocks; ++block) {
    HWY_UNROLL(16)
    for (int stripe = 0; stripe < xxh3::kBlockStripes; ++stripe) {
      sums.AddStripe<kStore>(from, to, 8 * stripe);
      from += xxh3::kStripeBytes;
      to += xxh3::kStripeBytes;
    }
    sums.Scramble();
  }
}

HWY_INLINE uint64_t ReadWord(const void* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// The upper and the lower half of the 128-bit product of a and b, combined by XOR.
HWY_INLINE uint64_t FoldedProduct(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}

HWY_INLINE uint64_t Merged(const Accumulators& sums, uint64_t bytes) {
  uint64_t lanes[xxh3::kLanes];
  for (size_t i = 0; i < kVectors; ++i) {
    hn::StoreU(sums.of[i], kLanesTag, lanes + i * kVectorLanes);
  }
  const auto* secret = reinterpret_cast<const std::byte*>(xxh3::kSecret.of) + xxh3::kMergeSecret;
  const auto keyed = [&](int i) { return lanes[i] ^ ReadWord(secret + 8 * i); };
  uint64_t sum = bytes * xxh3::kPrime64_1;
  for (int i = 0; i < xxh3::kLanes; i += 2) sum += FoldedProduct(keyed(i), keyed(i + 1));
  sum ^= sum >> 37;
  sum *= xxh3::kAvalanche;
  return sum ^ sum >> 32;
}

// Copies and hashes. The hash's last stripe is the last 64 bytes, even where they overlap the
// stripe before.
template <Store kStore>
HWY_INLINE uint64_t CopyInStripes(const std::byte* from, std::byte* to, size_t bytes) {
  Accumulators sums;
  const size_t num_blocks = (bytes - 1) / xxh3::kBlockBytes;
  CopyBlocks<kStore>(from, to, num_blocks, sums);
  const size_t done = num_blocks * xxh3::kBlockBytes;
  const size_t last = bytes - xxh3::kStripeBytes;
  const auto num_stripes = static_cast<int>((bytes - 1 - done) / xxh3::kStripeBytes);
  // Where the last stripe overlaps the one before, the rest is copied first and hashed in the
  // target.
  const bool overlaps = bytes % xxh3::kStripeBytes != 0;
  if (overlaps) std::memcpy(to + done, from + done, bytes - done);
  for (int i = 0; i < num_stripes; ++i) {
    const size_t at = done + static_cast<size_t>(i) * xxh3::kStripeBytes;
    if (overlaps) {
      sums.AddStripe<Store::kNone>(to + at, nullptr, 8 * i);
    } else {
      sums.AddStripe<kStore>(from + at, to + at, 8 * i);
    }
  }
  if (overlaps) {
    sums.AddStripe<Store::kNone>(to + last, nullptr, xxh3::kLastStripeSecret);
  } else {
    sums.AddStripe<kStore>(from + last, to + last, xxh3::kLastStripeSecret);
  }
  return Merged(sums, bytes);
}

// Copies and hashes more than kShortBytes bytes.
uint64_t CopyLong(const std::byte* from, std::byte* to, size_t bytes) {
  if (bytes >= kPastCachesFrom && reinterpret_cast<uintptr_t>(to) % kCacheLineBytes == 0) {
    return CopyInStripes<Store::kPastCaches>(from, to, bytes);
  }
  return CopyInStripes<Store::kCached>(from, to, bytes);
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {
namespace {

HWY_EXPORT(CopyLong);

uint64_t CopyAndHash(std::span<std::byte> dst, std::span<const std::byte> src) {
  if (src.size() > xxh3::kShortBytes) {
    return HWY_DYNAMIC_DISPATCH(CopyLong)(src.data(), dst.data(), src.size());
  }
  if (!src.empty()) std::memcpy(dst.data(), src.data(), src.size());
  return Hash64(dst);
}

}  // namespace

void CopyAndHashAll(std::span<const ExtentCopy> copies, std::span<uint64_t> hashes) {
  for (size_t i = 0; i < copies.size(); ++i) hashes[i] = CopyAndHash(copies[i].dst, copies[i].src);
  // Stores past the caches are unordered with others, so they are fenced: once for all copies,
  // because each fence waits for the memory.
  hwy::FlushStream();
}

}  // namespace tandem::cpu
#endif
