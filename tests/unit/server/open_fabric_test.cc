#include "server/assembly/open_fabric.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/support/lone_streams.h"
#include "transfer/fabric/link_prober.h"

namespace tandem::open_fabric_test {
namespace {

constexpr StreamKey kKey = {.stream = 1, .epoch = 2};

EngineOptions OfContext(int32_t num_layers, int32_t max_context_tokens) {
  return {.role = Role::kPrefill,
          .layout = {.num_layers = num_layers, .num_kv_heads = 8, .head_dim = 128},
          .max_context_tokens = max_context_tokens};
}

// Whether a stream of `frames` is taken at a worker with these options.
absl::Status Admit(const EngineOptions& engine, size_t frames) {
  static constexpr std::byte kByte{1};
  LoneStreams streams(static_cast<uint64_t>(MostFramesOf(engine)));
  const std::vector<PostedExtent> extents(frames, {.payload = {&kByte, 1}});
  return streams.Open(kKey)->Post(extents);
}

TEST(MostFramesTest, NoPromptOfTheContextHasTooMany) {
  // Llama 3.1 70B: 80 layers, 128 Ki tokens in blocks of 16.
  const EngineOptions llama = OfContext(80, 131072);
  EXPECT_EQ(Admit(llama, 80 * 8192), absl::OkStatus());
  EXPECT_EQ(Admit(llama, 80 * 8192 + 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Admit(OfContext(80, 131073), 80 * 8193), absl::OkStatus())
      << "a block that is not full";
}

TEST(MostFramesTest, AShortContextLeavesRoomForProbes) {
  EXPECT_EQ(Admit(OfContext(1, 16), kMostBulkBytes / kProbeSmallPayload), absl::OkStatus());
}

}  // namespace
}  // namespace tandem::open_fabric_test
