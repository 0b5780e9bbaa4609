#pragma once

#include <cstdint>

// The constants of XXH3 64-bit with seed 0, from its specification (xxhash_spec.md of the
// reference's repository, version 0.2.0), for the backends' copies that hash as they go. An input
// of more than 240 bytes is hashed in eight 64-bit accumulators: a stripe is 64 bytes, one word for
// each accumulator, and a block 16 stripes. Within a block what the stripes add does not depend on
// the accumulators; the end of a block scrambles them. base/hash.h has the hash of bytes that are
// only read.
namespace tandem::xxh3 {

inline constexpr int kLanes = 8;  // accumulators, and words of a stripe
inline constexpr uint64_t kStripeBytes = 64;
inline constexpr uint64_t kBlockBytes = 1024;
inline constexpr int kBlockStripes = 16;
inline constexpr uint64_t kShortBytes = 240;  // longest input that is hashed without accumulators

inline constexpr uint64_t kPrime32_1 = 0x9e3779b1;
inline constexpr uint64_t kPrime32_2 = 0x85ebca77;
inline constexpr uint64_t kPrime32_3 = 0xc2b2ae3d;
inline constexpr uint64_t kPrime64_1 = 0x9e3779b185ebca87;
inline constexpr uint64_t kPrime64_2 = 0xc2b2ae3d27d4eb4f;
inline constexpr uint64_t kPrime64_3 = 0x165667b19e3779f9;
inline constexpr uint64_t kPrime64_4 = 0x85ebca77c2b2ae63;
inline constexpr uint64_t kPrime64_5 = 0x27d4eb2f165667c5;
inline constexpr uint64_t kAvalanche = 0x165667919e3779f9;

struct Words {
  uint64_t of[24];
};
// The accumulators' initial values, in the first eight words.
inline constexpr Words kFirst = {{kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3, kPrime64_4,
                                  kPrime32_2, kPrime64_5, kPrime32_1}};
// The default secret, in little-endian words.
inline constexpr Words kSecret = {
    {0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
     0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
     0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
     0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
     0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
     0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af}};
// Offsets in the secret, in bytes, for each use but the stripes: stripe i of a block begins at 8 *
// i.
inline constexpr int kScrambleSecret = 128;
inline constexpr int kLastStripeSecret = 121;
inline constexpr int kMergeSecret = 11;

}  // namespace tandem::xxh3
