#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/tree.h"
#include "tests/unit/transformer/model_under_test.h"

namespace tandem::resident_weights_test {
namespace {

using testing::HasSubstr;

const std::string kModel = TreePath("tests/golden/checkpoints/llama2");

// Holds the packing thread where it reports progress. Thread-safe.
class PackingGate {
 public:
  LoadProgress Progress() {
    return [this](uint64_t loaded, uint64_t) { Pass(loaded); };
  }
  // Packing may go on until more than `bytes` are loaded.
  void AllowUpTo(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    allowed_ = bytes;
  }
  void Open() { AllowUpTo(std::numeric_limits<uint64_t>::max()); }
  // Returns how many bytes are loaded when it holds the packing thread.
  uint64_t AwaitHeld() {
    absl::MutexLock lock(&mutex_);
    const auto held = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return loaded_ > allowed_; };
    mutex_.Await(absl::Condition(&held));
    return loaded_;
  }

 private:
  void Pass(uint64_t loaded) {
    absl::MutexLock lock(&mutex_);
    loaded_ = loaded;
    const auto allowed = [this]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return loaded_ <= allowed_; };
    mutex_.Await(absl::Condition(&allowed));
  }

  absl::Mutex mutex_;
  uint64_t allowed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t loaded_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The CPU, but for streams that fail at the `fail_at`-th time that somebody waits for them.
class FailingDevice final : public ForwardingDevice {
 public:
  FailingDevice(Device& device, int fail_at) : ForwardingDevice(device), fail_at_(fail_at) {}

 private:
  class FailingStream final : public ForwardingStream {
   public:
    FailingStream(std::unique_ptr<Stream> stream, int fail_at)
        : ForwardingStream(std::move(stream)), left_(fail_at) {}

    absl::Status Synchronize() override {
      return --left_ == 0 ? Internal("the device fell off the bus")
                          : ForwardingStream::Synchronize();
    }

   private:
    int left_;
  };

  std::unique_ptr<Stream> MakeStream(std::unique_ptr<Stream> stream) override {
    return std::make_unique<FailingStream>(std::move(stream), fail_at_);
  }

  const int fail_at_;
};

class ResidentWeightsTest : public testing::Test {
 protected:
  // On `device`, or the CPU.
  std::unique_ptr<WeightStore> Load(LoadProgress progress, Device* device = nullptr,
                                    WeightsAs weights_as = WeightsAs::kStored) {
    config_ = LoadModelConfig(kModel).value();
    Backend packing = OpenBackend("cpu", {.num_threads = 2}).value();
    return LoadResidentWeights(config_, Checkpoint::Open(kModel).value(),
                               device != nullptr ? *device : *backend_.device, std::move(packing),
                               weights_as, std::move(progress))
        .value();
  }

  // Bytes in the file of the tensors whose names begin so.
  static uint64_t BytesOf(const std::string& prefix) {
    const auto checkpoint = Checkpoint::Open(kModel).value();
    uint64_t bytes = 0;
    for (const std::string& name : checkpoint->Names()) {
      if (name.starts_with(prefix)) bytes += checkpoint->Find(name)->bytes.size();
    }
    return bytes;
  }

  ModelConfig config_;
  Backend backend_ = OpenBackend("cpu", {.num_threads = 1}).value();
  PackingGate gate_;
};

TEST_F(ResidentWeightsTest, AForwardPassFollowsThePackingLayerByLayer) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7};
  const auto packed = ModelUnderTest::Load({.directory = kModel});
  TestSequence sequence = packed->NewSequence(prompt);
  const std::vector<float> expected = packed->Prefill(sequence, 7);

  // What comes after a layer is packed only once that layer has been computed with.
  uint64_t allowed = BytesOf("model.embed_tokens.") + BytesOf("model.layers.0.");
  gate_.AllowUpTo(allowed);
  const int32_t num_layers = packed->config().num_layers;
  const auto follow = [&](int32_t layer) {
    EXPECT_GT(gate_.AwaitHeld(), allowed);
    if (layer + 1 == num_layers) return gate_.Open();
    allowed += BytesOf("model.layers." + std::to_string(layer + 1) + ".");
    gate_.AllowUpTo(allowed);
  };
  const auto model = ModelUnderTest::Load({.directory = kModel,
                                           .num_threads = 2,
                                           .progress = gate_.Progress(),
                                           .layer_stored = follow});
  TestSequence same = model->NewSequence(prompt);
  EXPECT_EQ(model->Prefill(same, 7), expected);
}

TEST_F(ResidentWeightsTest, AnAskForTheLastLayerWaitsUntilItIsPacked) {
  const auto weights = Load(gate_.Progress());
  gate_.AwaitHeld();
  std::atomic<bool> opened = false;
  bool waited = false;
  std::thread asker([&] {
    EXPECT_TRUE(weights->Layer(config_.num_layers - 1).ok());
    waited = opened;
  });
  // The asker may come late: then it has nothing to wait for, but it never comes back early.
  opened = true;
  gate_.Open();
  asker.join();
  EXPECT_TRUE(waited);
}

TEST_F(ResidentWeightsTest, AnAskTakesWhatIsPackedWhileTheRestIsNot) {
  gate_.AllowUpTo(BytesOf("model.embed_tokens.") + BytesOf("model.layers.0."));
  const auto weights = Load(gate_.Progress());
  EXPECT_TRUE(weights->Embedding().ok());
  EXPECT_TRUE(weights->Layer(0).ok());
  gate_.AwaitHeld();
  gate_.Open();
  EXPECT_TRUE(weights->Head().ok());
}

TEST_F(ResidentWeightsTest, AStoreDroppedWhilePackingEndsItsPacking) {
  auto alive = std::make_shared<int>();
  std::weak_ptr<int> packing = alive;
  auto weights = Load(
      [alive, pass = gate_.Progress()](uint64_t loaded, uint64_t total) { pass(loaded, total); });
  alive.reset();
  gate_.AwaitHeld();
  std::thread opener([&] { gate_.Open(); });
  weights.reset();
  EXPECT_TRUE(packing.expired());
  opener.join();
}

TEST_F(ResidentWeightsTest, AnErrorWhilePackingAnswersEveryLaterAsk) {
  FailingDevice device(*backend_.device, /*fail_at=*/2);  // at layer 0
  const auto weights = Load(nullptr, &device);
  const absl::Status first = weights->Layer(0).status();
  EXPECT_EQ(first.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(first.message()), HasSubstr("the device fell off the bus"));
  EXPECT_EQ(weights->Embedding().status(), first);
  EXPECT_EQ(weights->Layer(1).status(), first);
  EXPECT_EQ(weights->Head().status(), first);
}

}  // namespace
}  // namespace tandem::resident_weights_test
