#pragma once

#include <cstdint>

namespace tandem::loadgen {

// Mixes two numbers into one that looks random: seeds of parts are derived from the seed of the
// run.
uint64_t MixSeeds(uint64_t seed, uint64_t part);

// Random numbers that depend on the seed alone, on every machine: the standard library's
// distributions differ between implementations. Not thread-safe.
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed) : seed_(seed) {}

  // Uniform in [0, 1).
  double Uniform();
  // Normal, with mean 0 and variance 1.
  double Normal();
  // Gamma-distributed, with mean 1 and variance 1 / shape. `shape` is above 0; a shape of 1 is the
  // exponential distribution, and an infinite one always gives 1.
  double GammaOfMeanOne(double shape);

 private:
  double GammaFromOneUp(double shape);

  const uint64_t seed_;
  uint64_t position_ = 0;
};

}  // namespace tandem::loadgen
