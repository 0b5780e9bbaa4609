#include <cmath>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/checkpoint/model_config.h"

namespace tandem::rope_test {
namespace {

// Expected: LlamaRotaryEmbedding.inv_freq of transformers 5.23.0 on torch 2.15.0, float32.
struct Case {
  int32_t head_dim;
  RopeConfig rope;
  std::vector<std::pair<int, float>> expected;
};

void ExpectFrequencies(const Case& c) {
  ModelConfig config;
  config.head_dim = c.head_dim;
  config.rope = c.rope;
  const std::vector<float> frequencies = RopeInverseFrequencies(config);
  ASSERT_EQ(frequencies.size(), static_cast<size_t>(c.head_dim / 2));
  for (const auto& [index, value] : c.expected) {
    EXPECT_NEAR(frequencies[index], value, value * 1.2e-7f) << "frequency " << index;
  }
}

TEST(RopeTest, Unscaled) {
  ExpectFrequencies({.head_dim = 128,
                     .rope = {.theta = 10000},
                     .expected = {{0, 0x1p+0f},
                                  {1, 0x1.bb5faep-1f},
                                  {7, 0x1.75f036p-2f},
                                  {13, 0x1.3b608p-3f},
                                  {20, 0x1.ccab84p-5f},
                                  {27, 0x1.507316p-6f},
                                  {31, 0x1.7a6622p-7f},
                                  {40, 0x1.9e7c7p-9f},
                                  {63, 0x1.e459c4p-14f}}});
}

TEST(RopeTest, Linear) {
  ExpectFrequencies({.head_dim = 64,
                     .rope = {.theta = 1e6, .scaling = RopeScaling::kLinear, .factor = 4},
                     .expected = {{0, 0x1p-2f},
                                  {1, 0x1.4c7bcp-3f},
                                  {7, 0x1.8eec7ep-7f},
                                  {13, 0x1.dea41cp-11f},
                                  {20, 0x1.74eea6p-15f},
                                  {27, 0x1.2291c6p-19f},
                                  {31, 0x1.9d5ef2p-22f}}});
}

// Kept, interpolated (27, 31) and stretched frequencies.
TEST(RopeTest, Llama3) {
  ExpectFrequencies({.head_dim = 128,
                     .rope = {.theta = 500000,
                              .scaling = RopeScaling::kLlama3,
                              .factor = 8,
                              .low_freq_factor = 1,
                              .high_freq_factor = 4,
                              .original_max_position_embeddings = 8192},
                     .expected = {{0, 0x1p+0f},
                                  {1, 0x1.a11582p-1f},
                                  {7, 0x1.e788c2p-3f},
                                  {13, 0x1.1cf13p-4f},
                                  {20, 0x1.0f5386p-6f},
                                  {27, 0x1.025c6ap-8f},
                                  {31, 0x1.c12f3cp-11f},
                                  {40, 0x1.1f91fp-15f},
                                  {63, 0x1.4985fep-22f}}});
}

}  // namespace
}  // namespace tandem::rope_test
