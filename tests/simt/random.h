#pragma once

#include <bit>
#include <cstdint>

namespace simt {

// The source of every choice that the hardware would leave open. Same seed, same choices.
class Random {
 public:
  void Seed(uint64_t seed) { state_ = seed; }

  uint64_t Next() {  // splitmix64
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>((Next() >> 32) * n >> 32); }
  bool OneIn(uint32_t n) { return Below(n) == 0; }
  // One of the set bits of `mask`, which has one.
  int Bit(uint32_t mask) {
    for (uint32_t skip = Below(static_cast<uint32_t>(std::popcount(mask))); skip > 0; --skip) {
      mask &= mask - 1;
    }
    return std::countr_zero(mask);
  }

 private:
  uint64_t state_ = 1;
};

}  // namespace simt
