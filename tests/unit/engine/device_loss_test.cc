// A device that fails for good: its requests end with that error, and whoever can start another
// process hears of it, once. Likewise of weights that cannot be loaded.

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "engine/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/support/wait_limit.h"

namespace tandem::device_loss_test {
namespace {

using ::testing::HasSubstr;

absl::Status Gone() { return absl::UnavailableError("the device fell off the bus"); }

// Whose streams fail from Fail() on; from Mute() on it does not answer for its memory, and from
// Lose() on it says nothing at all any more.
class FragileDevice final : public ForwardingDevice {
 public:
  explicit FragileDevice(Device& device) : ForwardingDevice(device) {}

  void Fail(bool fails) { fails_ = fails; }
  void Mute() { lost_ = true; }
  void Lose() {
    Fail(true);
    Mute();
  }

  absl::StatusOr<DeviceMemory> Memory() const override {
    if (lost_) return Gone();
    return ForwardingDevice::Memory();
  }

 private:
  class FragileStream final : public ForwardingStream {
   public:
    FragileStream(FragileDevice& device, std::unique_ptr<Stream> stream)
        : ForwardingStream(std::move(stream)), device_(device) {}
    absl::Status Synchronize() override {
      return device_.fails_ ? Gone() : ForwardingStream::Synchronize();
    }

   private:
    FragileDevice& device_;
  };

  std::unique_ptr<Stream> MakeStream(std::unique_ptr<Stream> stream) override {
    return std::make_unique<FragileStream>(*this, std::move(stream));
  }

  std::atomic<bool> fails_ = false;
  std::atomic<bool> lost_ = false;
};

// Whose file was cut short after it had been looked at.
class UnreadableWeights final : public WeightStore {
 public:
  static absl::Status Unreadable() { return absl::DataLossError("layer 3 cannot be read"); }

  absl::StatusOr<PackedMatrix> Embedding() override { return Unreadable(); }
  absl::StatusOr<LayerWeights> Layer(int32_t) override { return Unreadable(); }
  absl::StatusOr<HeadWeights> Head() override { return Unreadable(); }
  bool addresses_are_fixed() const override { return true; }
  bool has_codes() const override { return false; }
  absl::StatusOr<bool> loaded() const override { return Unreadable(); }
  int64_t resident_bytes() const override { return 0; }
};

EngineOptions OptionsFor(const ModelConfig& config) {
  return {.layout = {.num_layers = config.num_layers,
                     .num_kv_heads = config.num_kv_heads,
                     .head_dim = config.head_dim,
                     .block_tokens = 8},
          .num_blocks = 32,
          .max_context_tokens = 128};
}

TEST(WeightsLossTest, IsToldThoughNobodyAsks) {
  const auto model = TestModel::Load("tests/golden/checkpoints/llama2", 1, "cpu");
  UnreadableWeights weights;
  const SteadyClock clock;
  absl::Notification told;
  const auto engine =
      Engine::Create(OptionsFor(model->config), {.model = model->config,
                                                 .device = *model->backend.device,
                                                 .ops = *model->backend.ops,
                                                 .weights = &weights,
                                                 .clock = clock,
                                                 .lost = [&](const absl::Status& why) {
                                                   EXPECT_EQ(why, UnreadableWeights::Unreadable());
                                                   told.Notify();
                                                 }});
  ASSERT_TRUE(engine.ok()) << engine.status();
  Await(told);
}

TEST(DeviceLossTest, IsToldOnceAndEndsEveryRequest) {
  const auto model = TestModel::Load("tests/golden/checkpoints/llama2", 1, "cpu");
  const ModelConfig& config = model->config;
  const EngineOptions options = OptionsFor(config);
  FragileDevice device(*model->backend.device);
  const SteadyClock clock;
  std::atomic<int> told = 0;
  const auto engine =
      Engine::Create(options, {.model = config,
                               .device = device,
                               .ops = *model->backend.ops,
                               .weights = model->weights.get(),
                               .clock = clock,
                               .lost = [&](const absl::Status& why) {
                                 EXPECT_EQ(why.code(), Gone().code());
                                 EXPECT_THAT(why.message(), HasSubstr("cpu has failed: "));
                                 ++told;
                               }});
  ASSERT_TRUE(engine.ok()) << engine.status();
  uint64_t id = 0;
  const auto ask = [&] {
    ++id;
    Recording recording;
    (*engine)->Submit(Greedy(id, RandomPrompt(id, 20, config.vocab_size), 4), recording.NewSink());
    return recording.AwaitFinish().status;
  };
  EXPECT_EQ(ask(), absl::OkStatus());
  device.Fail(true);
  EXPECT_EQ(ask(), Gone());
  EXPECT_EQ(told, 0) << "it still answers";
  device.Fail(false);
  EXPECT_EQ(ask(), absl::OkStatus());
  device.Lose();
  EXPECT_EQ(ask(), Gone());
  EXPECT_EQ(ask(), Gone());
  EXPECT_EQ(told, 1);
}

// Such a request has failed by its own fault, so the device is not asked whether it still answers.
TEST(DeviceLossTest, IsNotLookedForWhenConstraintsLeaveNoToken) {
  const auto model = TestModel::Load("tests/golden/checkpoints/llama2", 1, "cpu");
  FragileDevice device(*model->backend.device);
  const SteadyClock clock;
  std::atomic<int> told = 0;
  const auto engine =
      Engine::Create(OptionsFor(model->config), {.model = model->config,
                                                 .device = device,
                                                 .ops = *model->backend.ops,
                                                 .weights = model->weights.get(),
                                                 .clock = clock,
                                                 .lost = [&](const absl::Status&) { ++told; }});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EngineRequest request = Greedy(1, {1, 2, 3}, 4);
  request.constraints = {.allowed_token_ids = {4}, .bad_words = {{4, 4}}};
  Recording recording;
  device.Mute();
  (*engine)->Submit(request, recording.NewSink());
  EXPECT_EQ(recording.AwaitFinish().status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(recording.token_ids().size(), 1u);
  EXPECT_EQ(told, 0);
}

}  // namespace
}  // namespace tandem::device_loss_test
