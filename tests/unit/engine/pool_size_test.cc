#include "engine/pool_size.h"

#include <string>

#include "engine/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/test_model.h"

namespace tandem::pool_size_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The CPU's memory under the name and with the figures of a GPU.
class GpuOfSize final : public ForwardingDevice {
 public:
  GpuOfSize(Device& device, const DeviceMemory& memory)
      : ForwardingDevice(device), memory_(memory) {}

  std::string name() const override { return "cuda:0"; }
  bool is_host() const override { return false; }
  absl::StatusOr<DeviceMemory> Memory() const override { return memory_; }

 private:
  const DeviceMemory memory_;
};

constexpr size_t kGigabyte = 1'000'000'000;

class PoolSizeTest : public ::testing::Test {
 protected:
  // Blocks of 1,048,576 bytes.
  const KvLayout layout_ = {
      .num_layers = 16, .num_kv_heads = 8, .head_dim = 128, .block_tokens = 16};
  const Backend backend_ = *OpenBackend("cpu", {.num_threads = 1});

  absl::StatusOr<int32_t> Blocks(double fraction, const DeviceMemory& memory,
                                 int64_t reserved_bytes = 0) const {
    return BlocksThatFit(layout_, fraction, reserved_bytes, GpuOfSize(*backend_.device, memory));
  }
};

TEST_F(PoolSizeTest, TakesWhatTheFractionLeaves) {
  ASSERT_EQ(layout_.BlockBytes(), 1 << 20);
  const DeviceMemory memory = {
      .free_bytes = 64 * kGigabyte, .total_bytes = 80 * kGigabyte, .own_bytes = 16 * kGigabyte};
  EXPECT_EQ(*Blocks(0.9, memory), 56 * kGigabyte >> 20);
  EXPECT_EQ(*Blocks(0.45, memory), 20 * kGigabyte >> 20);
}

TEST_F(PoolSizeTest, LeavesWhatIsReserved) {
  const DeviceMemory memory = {
      .free_bytes = 64 * kGigabyte, .total_bytes = 80 * kGigabyte, .own_bytes = 16 * kGigabyte};
  EXPECT_EQ(*Blocks(0.9, memory, 6 * kGigabyte), 50 * kGigabyte >> 20);
  const auto none = Blocks(0.9, memory, 56 * kGigabyte);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("transfers 56.00 GB"));
  const DeviceMemory crowded = {
      .free_bytes = 55 * kGigabyte, .total_bytes = 80 * kGigabyte, .own_bytes = 16 * kGigabyte};
  EXPECT_FALSE(Blocks(0.9, crowded, 6 * kGigabyte).ok()) << "what is reserved must be free, too";
}

TEST_F(PoolSizeTest, TwoThatShareADeviceFit) {
  const DeviceMemory first = {
      .free_bytes = 64 * kGigabyte, .total_bytes = 80 * kGigabyte, .own_bytes = 16 * kGigabyte};
  const int32_t blocks = *Blocks(0.45, first);
  const DeviceMemory second = {
      .free_bytes =
          first.free_bytes - static_cast<size_t>(blocks) * layout_.BlockBytes() - 16 * kGigabyte,
      .total_bytes = 80 * kGigabyte,
      .own_bytes = 16 * kGigabyte};
  EXPECT_EQ(*Blocks(0.45, second), blocks);
}

TEST_F(PoolSizeTest, SaysWhatIsInTheWay) {
  const auto too_large = Blocks(
      0.2,
      {.free_bytes = 60 * kGigabyte, .total_bytes = 80 * kGigabyte, .own_bytes = 16'500'000'000});
  EXPECT_EQ(too_large.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(too_large.status().message()),
              AllOf(HasSubstr("16.50 GB"), HasSubstr("16.00 GB"), HasSubstr("80.00 GB"),
                    HasSubstr("--device-memory-fraction")));
  const auto taken = Blocks(
      0.9,
      {.free_bytes = 10 * kGigabyte, .total_bytes = 80 * kGigabyte, .own_bytes = 16 * kGigabyte});
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(taken.status().message()),
              AllOf(HasSubstr("56.00 GB"), HasSubstr("10.00 GB are free")));
  EXPECT_EQ(Blocks(0, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Blocks(1.5, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BlocksThatFit(layout_, 0.9, 0, *backend_.device).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// An engine that is to size its pool does so, and lets in no context that the pool cannot hold.
TEST_F(PoolSizeTest, AnEngineSizesItsPool) {
  const auto model = TestModel::Load("tests/golden/checkpoints/llama2", 1, "cpu");
  const ModelConfig& config = model->config;
  EngineOptions options = {.layout = {.num_layers = config.num_layers,
                                      .num_kv_heads = config.num_kv_heads,
                                      .head_dim = config.head_dim,
                                      .block_tokens = 8},
                           .device_memory_fraction = 0.5,
                           .max_context_tokens = config.max_position_embeddings};
  const auto block_bytes = static_cast<size_t>(options.layout.BlockBytes());
  GpuOfSize device(*model->backend.device, {.free_bytes = 100 * block_bytes,
                                            .total_bytes = 100 * block_bytes,
                                            .own_bytes = 40 * block_bytes});
  const SteadyClock clock;
  const auto create = [&] {
    return Engine::Create(options, {.model = config,
                                    .device = device,
                                    .ops = *model->backend.ops,
                                    .weights = model->weights.get(),
                                    .clock = clock});
  };
  const auto engine = create();
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->options().num_blocks, 10);
  EXPECT_EQ((*engine)->options().max_context_tokens, 80);
  EXPECT_EQ((*engine)->stats().kv.total_blocks, 10);
  options.reserved_device_bytes = static_cast<int64_t>(3 * block_bytes);
  const auto smaller = create();
  ASSERT_TRUE(smaller.ok()) << smaller.status();
  EXPECT_EQ((*smaller)->options().num_blocks, 7);
}

}  // namespace
}  // namespace tandem::pool_size_test
