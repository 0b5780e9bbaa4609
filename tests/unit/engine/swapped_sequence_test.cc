// Sequences whose KV was swapped to the host: they are cancelled there, or it comes back damaged.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::swapped_sequence_test {
namespace {

constexpr int32_t kVocabulary = 288;
constexpr int64_t kHostTierBytes = 8 << 20;

// Knows the memory that it gave to the host tier, so that a test can damage what was copied there.
class HostTierDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override {
    auto memory = ForwardingDevice::AllocateHost(bytes);
    if (memory.ok() && bytes > static_cast<size_t>(kHostTierBytes) / 2)
      host_tier_ = memory->bytes();
    return memory;
  }

  void Damage() {
    ASSERT_FALSE(host_tier_.empty());
    for (std::byte& byte : host_tier_) byte ^= std::byte{1};
  }

 private:
  std::span<std::byte> host_tier_;
};

// Two requests that outgrow a pool of 16 blocks together. The second one is swapped to the host and
// cannot come back before the first has ended.
class SwappedSequenceTest : public testing::Test {
 protected:
  void SetUp() override {
    engine_.gate().Allow(0);
    Teach();
  }

  // The engine swaps where it has measured that copying is cheaper than computing, so steps take a
  // second per token on its clock. It admits more than fits where it has seen short outputs, so
  // every output ends with its first token.
  void Teach() {
    for (int32_t i = 1; i <= 12; ++i) {
      EngineRequest request = Greedy(1000 + i, RandomPrompt(i, 4 * i, kVocabulary), 60);
      request.stop_token_ids.resize(kVocabulary);
      std::iota(request.stop_token_ids.begin(), request.stop_token_ids.end(), 0);
      Recording recording;
      engine_->Submit(request, recording.NewSink());
      engine_.gate().AwaitHeld();
      clock_.Advance(std::chrono::seconds(4 * i));
      engine_.gate().Allow(1);
      ASSERT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
    }
  }

  // Returns when the second request is on the host and the first waits at the gate.
  void RunUntilTheSecondIsOnTheHost(const EngineRequest& second) {
    engine_->Submit(Greedy(1, RandomPrompt(50, 30, kVocabulary), 90), first_.NewSink());
    engine_.gate().AwaitHeld();
    engine_->Submit(second, second_.NewSink());
    EngineStats stats = engine_->stats();
    while (stats.scheduler.preempted_swap == 0 || stats.kv.pinned_blocks > 0) {
      engine_.gate().Allow(1);
      engine_.gate().AwaitHeld();
      stats = engine_->stats();
      ASSERT_EQ(stats.scheduler.preempted_recompute, 0u);
    }
    ASSERT_GT(stats.kv.swapped_blocks, 0);
  }

  void ExpectFirstEndsWell() {
    EXPECT_TRUE(first_.AwaitFinish().status.ok()) << first_.AwaitFinish().status;
  }

  void ExpectSecondAnswersAsUndisturbed(const EngineRequest& second) {
    TestEngine undisturbed({.num_blocks = 256});
    Recording expected;
    undisturbed->Submit(second, expected.NewSink());
    EXPECT_TRUE(expected.AwaitFinish().status.ok());
    const FinishInfo end = second_.AwaitFinish();
    EXPECT_TRUE(end.status.ok()) << end.status;
    EXPECT_EQ(end.preemptions, 1);
    for (int32_t choice = 0; choice < second.n; ++choice) {
      EXPECT_EQ(second_.token_ids(choice), expected.token_ids(choice)) << "choice " << choice;
    }
  }

  FakeClock clock_;
  Recording first_;
  Recording second_;
  HostTierDevice* device_ = nullptr;
  TestEngine engine_{{.num_blocks = 16,
                      .prefix_caching = PrefixCaching::kOff,
                      .host_bytes = kHostTierBytes,
                      .clock = &clock_,
                      .wrap_device = [this](Device& device) {
                        auto wrapped = std::make_unique<HostTierDevice>(device);
                        device_ = wrapped.get();
                        return wrapped;
                      }}};
};

TEST_F(SwappedSequenceTest, ACancelledOneLeavesNothingOnTheHost) {
  RunUntilTheSecondIsOnTheHost(Greedy(2, RandomPrompt(51, 30, kVocabulary), 60));
  engine_->Cancel(RequestId(2), absl::OkStatus());
  engine_.gate().Open();
  EXPECT_EQ(second_.AwaitFinish().status.code(), absl::StatusCode::kCancelled);
  ExpectFirstEndsWell();
  EXPECT_TRUE(engine_.AtRest());
}

TEST_F(SwappedSequenceTest, ADamagedOneIsComputedAgainAndLeavesNothingOnTheHost) {
  const EngineRequest second = Greedy(2, RandomPrompt(51, 30, kVocabulary), 60);
  RunUntilTheSecondIsOnTheHost(second);
  device_->Damage();
  engine_.gate().Open();
  ExpectFirstEndsWell();
  ExpectSecondAnswersAsUndisturbed(second);
  EXPECT_TRUE(engine_.AtRest());
}

TEST_F(SwappedSequenceTest, ADamagedBeamSearchBeginsAgain) {
  EngineRequest second = Greedy(2, RandomPrompt(51, 30, kVocabulary), 40);
  second.sampling = {};
  second.beams = BeamParams{.width = 2};
  second.n = 2;
  RunUntilTheSecondIsOnTheHost(second);
  device_->Damage();
  engine_.gate().Open();
  ExpectFirstEndsWell();
  ExpectSecondAnswersAsUndisturbed(second);
  EXPECT_TRUE(engine_.AtRest());
}

}  // namespace
}  // namespace tandem::swapped_sequence_test
