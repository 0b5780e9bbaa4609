#include <cmath>
#include <numbers>

#include "model/checkpoint/model_config.h"

namespace tandem {
namespace {

// The llama3 scaling: divides the frequency by `factor` for long wavelengths, keeps it for short
// ones, and interpolates in between.
float Llama3Frequency(const RopeConfig& rope, float frequency) {
  const float context = static_cast<float>(rope.original_max_position_embeddings);
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  const float smooth = (context / wavelength - rope.low_freq_factor) /
                       (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

// Computes in float32 and in the reference's order of operations, because at position 100,000 one
// rounding of a frequency changes the angle in its second decimal.
std::vector<float> RopeInverseFrequencies(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  std::vector<float> frequencies(config.head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    const float base = static_cast<float>(std::pow(double{rope.theta}, double{exponent}));
    float frequency = 1 / base;
    switch (rope.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequency = Llama3Frequency(rope, frequency);
        break;
    }
    frequencies[i] = frequency;
  }
  return frequencies;
}

}  // namespace tandem
