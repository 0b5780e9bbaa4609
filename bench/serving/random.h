#pragma once

#include <cstdint>

namespace tandem::loadgen {

// Mixes two numbers into one that looks random: seeds of parts are derived from the seed of the run.
uint64_t MixSeeds(uint64_t seed, uint64_t part);

// Random numbers that depend on the seed alone, on every machine: the standard library's
// distributions differ between implementations. Not thread-safe.
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed) : seed_(seed) {}

  // In [0, 1).
  double Uniform();
  // Of mean 0 and variance 1.
  double Normal();
  // Of mean 1 and variance 1 / shape. `shape` is above 0; 1 gives the exponential distribution and
  // infinity always 1.
  double GammaOfMeanOne(double shape);

 private:
  double GammaFromOneUp(double shape);

  const uint64_t seed_;
  uint64_t position_ = 0;
};

}  // namespace tandem::loadgen
