// The closed formulas give what was published with them: parameters and results for Qwen3-8B on
// eight RTX 4090 (KV relayed through pinned host memory) and on H20 (peer to peer).

#include "router/policy/classic_model.h"

#include <cmath>

#include "gtest/gtest.h"

namespace tandem::classic_model_test {
namespace {

constexpr double kQwen3Bytes = 147456;  // of KV per token
constexpr ClassicCoefficients kRtx4090 = {.alpha_ms = 0.124722,
                                          .beta_ms = 51.5604,
                                          .gamma_ms = 0.0869146,
                                          .batch_thresh = 16,
                                          .bandwidth_gb_per_s = 12.896,
                                          .bytes_per_token = kQwen3Bytes};
constexpr ClassicCoefficients kH20 = {.alpha_ms = 0.145180,
                                      .beta_ms = 33.1031,
                                      .gamma_ms = 0.130235,
                                      .batch_thresh = 16,
                                      .bandwidth_gb_per_s = 392.15,
                                      .bytes_per_token = kQwen3Bytes};

// 512 prompt tokens, 200 output tokens.
TEST(ClassicModelTest, GivesThePublishedTimes) {
  const ClassicModel model(kRtx4090);
  EXPECT_EQ(std::round(model.Disaggregated(512, 200, 1)), 10382);
  EXPECT_EQ(std::round(model.Unified(512, 200, 0)), 10376);
  EXPECT_EQ(std::round(model.Unified(512, 200, 4)), 10387);
  EXPECT_EQ(std::round(model.Unified(512, 200, 16)), 10420);
  // The published figure comes from a coefficient with more digits: 20732.518 with those above.
  EXPECT_EQ(std::floor(model.Unified(512, 200, 32)), 20732);
}

TEST(ClassicModelTest, GivesThePublishedBreakEvenLoads) {
  EXPECT_NEAR(ClassicModel(kRtx4090).BreakEvenLoad(), 2.10, 0.01);
  EXPECT_NEAR(ClassicModel(kH20).BreakEvenLoad(), 0.046, 0.001);
  EXPECT_NEAR(ClassicModel(kRtx4090).Transfer(1), 0.011434, 1e-6);
  EXPECT_NEAR(ClassicModel(kH20).Transfer(1), 0.000376, 1e-6);
}

TEST(ClassicModelTest, TheRoutesAreEqualAtTheBreakEvenLoad) {
  const ClassicModel model(kRtx4090);
  const double load = model.BreakEvenLoad();
  EXPECT_NEAR(model.Unified(777, 55, load), model.Disaggregated(777, 55, 1), 1e-9);
  EXPECT_LT(model.Unified(777, 55, load - 0.1), model.Disaggregated(777, 55, 1));
  EXPECT_GT(model.Unified(777, 55, load + 0.1), model.Disaggregated(777, 55, 1));
}

}  // namespace
}  // namespace tandem::classic_model_test
