#include "model/transformer/rope_table.h"

#include "gtest/gtest.h"
#include "kernels/registry.h"

namespace tandem::rope_table_test {
namespace {

// The reference multiplies position and frequency in float32. At these positions the angle of an
// exact product differs in the fourth decimal. Expected: float32 angles, computed with Python.
TEST(RopeTableTest, AnglesAreFloatProductsAsInTheReference) {
  struct Expected {
    int32_t position;
    int32_t index;
    float cos;
    float sin;
  };
  const auto backend = OpenBackend("cpu", {.num_threads = 1});
  ASSERT_TRUE(backend.ok()) << backend.status();
  ModelConfig config;
  config.head_dim = 8;
  config.rope = {.theta = 10000};  // frequencies 1, 0.1, 0.01 and 0.001
  const auto table = RopeTable::Create(config, 100'001, *backend->device);
  ASSERT_TRUE(table.ok()) << table.status();
  for (const Expected& expected : {
           Expected{0, 3, 1.0f, 0.0f},
           Expected{1, 1, 0.995004165f, 0.0998334181f},
           Expected{65'535, 1, 0.990530947f, 0.137289629f},
           Expected{99'999, 0, -0.509875372f, 0.860248281f},
           Expected{99'999, 2, 0.570627635f, 0.821208927f},
           Expected{100'000, 1, -0.952155368f, -0.305614389f},
           Expected{100'000, 3, 0.862322736f, -0.506359062f},
       }) {
    const auto* const cos = table->cos().Row<const float>(expected.position);
    const auto* const sin = table->sin().Row<const float>(expected.position);
    EXPECT_NEAR(cos[expected.index], expected.cos, 1e-7) << expected.position;
    EXPECT_NEAR(sin[expected.index], expected.sin, 1e-7) << expected.position;
  }
}

}  // namespace
}  // namespace tandem::rope_table_test
