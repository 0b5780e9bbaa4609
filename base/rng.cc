#include "base/rng.h"

namespace tandem {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

}  // namespace

std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  // The state is four variables and not an array, which the compiler would keep in memory.
  auto x0 = static_cast<uint32_t>(counter_low);
  auto x1 = static_cast<uint32_t>(counter_low >> 32);
  auto x2 = static_cast<uint32_t>(counter_high);
  auto x3 = static_cast<uint32_t>(counter_high >> 32);
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * x0;
    const uint64_t product1 = uint64_t{kMultiplier1} * x2;
    x0 = static_cast<uint32_t>(product1 >> 32) ^ x1 ^ key0;
    x1 = static_cast<uint32_t>(product1);
    x2 = static_cast<uint32_t>(product0 >> 32) ^ x3 ^ key1;
    x3 = static_cast<uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {x0, x1, x2, x3};
}

double UniformAt(uint64_t seed, uint64_t position) {
  const std::array<uint32_t, 4> bits = Philox4x32(seed, position, 0);
  const uint64_t wide = (uint64_t{bits[0]} << 32 | bits[1]) >> 11;
  return static_cast<double>(wide) * 0x1.0p-53;
}

}  // namespace tandem
