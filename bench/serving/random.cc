#include "bench/serving/random.h"

#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace tandem::loadgen {

uint64_t MixSeeds(uint64_t seed, uint64_t part) {
  const auto mixed = Philox4x32(seed, part, 0x7461'6e64'656dULL);
  return uint64_t{mixed[0]} << 32 | mixed[1];
}

double RandomStream::Uniform() { return UniformAt(seed_, position_++); }

// Box and Muller's transform. The second of each pair is dropped, so that the number of draws does
// not depend on who asked before.
double RandomStream::Normal() {
  const double radius = std::sqrt(-2 * std::log1p(-Uniform()));
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

double RandomStream::GammaOfMeanOne(double shape) {
  if (std::isinf(shape)) return 1;
  if (shape == 1) return -std::log1p(-Uniform());
  if (shape > 1) return GammaFromOneUp(shape) / shape;
  // A gamma variate of shape + 1, times U^(1/shape), is one of `shape`.
  const double shrink = std::pow(1 - Uniform(), 1 / shape);
  return GammaFromOneUp(shape + 1) * shrink / shape;
}

// A gamma variate of scale 1. Source: Marsaglia, Tsang, "A simple method for generating gamma
// variables", 2000.
double RandomStream::GammaFromOneUp(double shape) {
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = Normal();
    const double root = 1 + c * x;
    const double u = 1 - Uniform();
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d * (1 - v + std::log(v))) return d * v;
  }
}

}  // namespace tandem::loadgen
