#include "kvstore/tier/copier.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "tests/unit/kvstore/gated_device.h"

namespace tandem::copier_test {
namespace {

KvLayout ThreeLayers() {
  return {.num_layers = 3, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8};
}

// Stands for the stream that blocks are computed on: what is queued there ends when the test says.
class ScriptedStream final : public Stream {
 public:
  void Queue() { state_ = std::make_shared<State>(); }
  void End(absl::Status status = absl::OkStatus()) {
    state_->status = std::move(status);
    state_->ended.Notify();
  }
  void FailRecords(absl::Status status) { record_status_ = std::move(status); }

  absl::StatusOr<std::unique_ptr<Event>> Record() override {
    if (!record_status_.ok()) return record_status_;
    return std::make_unique<ScriptedEvent>(state_);
  }
  absl::Status Copy(std::span<std::byte>, std::span<const std::byte>) override { return No(); }
  absl::Status CopyAll(std::span<const ExtentCopy>, std::span<uint64_t>) override { return No(); }
  absl::Status HashAll(std::span<const std::span<const std::byte>>, std::span<uint64_t>) override {
    return No();
  }
  absl::Status Wait(const Event&) override { return No(); }
  absl::Status Synchronize() override { return No(); }
  absl::Status BeginRecording() override { return No(); }
  absl::StatusOr<std::unique_ptr<Graph>> EndRecording() override { return No(); }
  absl::Status Launch(Graph&) override { return No(); }
  void* native_handle() const override { return nullptr; }

 private:
  struct State {
    absl::Notification ended;
    absl::Status status;
  };
  class ScriptedEvent final : public Event {
   public:
    explicit ScriptedEvent(std::shared_ptr<State> state) : state_(std::move(state)) {}
    bool Done() const override { return state_ == nullptr || state_->ended.HasBeenNotified(); }
    absl::Status Synchronize() override {
      if (state_ == nullptr) return absl::OkStatus();
      state_->ended.WaitForNotification();
      return state_->status;
    }

   private:
    std::shared_ptr<State> state_;
  };
  static absl::Status No() { return absl::InternalError("the copier has no business here"); }

  std::shared_ptr<State> state_;  // null: nothing was queued
  absl::Status record_status_;
};

class CopierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_ = *OpenBackend("cpu", {.num_threads = 1});
    device_ = std::make_unique<GatedDevice>(*backend_.device);
    memory_ = *device_->Allocate(8 * ThreeLayers().BlockBytes());
    slab_.resize(shape_.total_bytes());
    const Copier::Options options = {
        .layout = ThreeLayers(), .layout_fingerprint = 7, .pool = View(), .wake = [this] {
          Wake();
        }};
    copier_ = *Copier::Create(options, *device_, compute_);
    for (int32_t block = 0; block < 8; ++block) FillBlock(block, block + 1);
  }

  void Wake() {
    if (!woken_.HasBeenNotified()) woken_.Notify();
  }

  KvPoolView View() const { return ThreeLayers().PoolView(memory_.data(), 8); }

  std::span<std::byte> Extent(int32_t layer, int32_t block) {
    return {View().Extent(layer, block), static_cast<size_t>(ThreeLayers().ExtentBytes())};
  }
  void FillBlock(int32_t block, int32_t value) {
    for (int32_t layer = 0; layer < 3; ++layer) {
      std::ranges::fill(Extent(layer, block), static_cast<std::byte>(value + 16 * layer));
    }
  }
  bool Holds(int32_t block, int32_t value) {
    for (int32_t layer = 0; layer < 3; ++layer) {
      const auto expected = static_cast<std::byte>(value + 16 * layer);
      if (std::ranges::count(Extent(layer, block), expected) != ThreeLayers().ExtentBytes())
        return false;
    }
    return true;
  }

  SlabCopy Copy(std::vector<BlockPlace> places, int32_t num_blocks) {
    return {
        .slab = slab_, .chained_hash = 5, .num_blocks = num_blocks, .places = std::move(places)};
  }

  Backend backend_;
  std::unique_ptr<GatedDevice> device_;
  DeviceBuffer memory_;
  const StoreBlockShape shape_{ThreeLayers()};
  std::vector<std::byte> slab_;
  absl::Notification woken_;
  ScriptedStream compute_;
  std::unique_ptr<Copier> copier_;
};

TEST_F(CopierTest, CopiesOutAndPartsOfItIn) {
  const auto out = copier_->Post(CopyDirection::kToHost,
                                 {Copy({{BlockId(6), 0}, {BlockId(2), 1}, {BlockId(3), 2}}, 3)});
  copier_->Stop();
  EXPECT_TRUE(woken_.HasBeenNotified());
  const auto done = copier_->Drain();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].id, out);
  EXPECT_EQ(done[0].statuses.at(0), absl::OkStatus());
  EXPECT_GT(done[0].took.count(), 0);
  EXPECT_EQ(VerifyStoreBlock(shape_, {7, 5, 3}, slab_), absl::OkStatus()) << "sealed";
  EXPECT_EQ(shape_.Extent(slab_, 2, 1)[0], static_cast<std::byte>(3 + 32));
}

TEST_F(CopierTest, OfOneDirectionInTheOrderOfPosting) {
  device_->CloseGate();
  copier_->Post(CopyDirection::kToHost, {Copy({{BlockId(6), 0}, {BlockId(2), 1}}, 2)});
  copier_->Post(CopyDirection::kToHost,
                {{.slab = slab_, .chained_hash = 6, .num_blocks = 1, .places = {{BlockId(3), 0}}}});
  EXPECT_TRUE(copier_->Drain().empty()) << "Post waits for nothing";
  device_->OpenGate();
  copier_->Stop();
  EXPECT_EQ(VerifyStoreBlock(shape_, {7, 6, 1}, slab_), absl::OkStatus()) << "the later one";
  EXPECT_EQ(copier_->Drain().size(), 2u);
}

TEST_F(CopierTest, TheOtherDirectionDoesNotWait) {
  std::vector<std::byte> away(shape_.total_bytes());
  SealStoreBlock(shape_, {7, 5, 2}, slab_);
  compute_.Queue();
  copier_->Post(CopyDirection::kToHost,
                {{.slab = away, .chained_hash = 6, .num_blocks = 1, .places = {{BlockId(3), 0}}}});
  ScriptedStream leaving = std::exchange(compute_, ScriptedStream());
  const auto in = copier_->Post(CopyDirection::kToDevice, {Copy({{BlockId(0), 1}}, 2)});
  woken_.WaitForNotification();
  EXPECT_EQ(copier_->Drain().at(0).id, in) << "while the other waits for what is computed";
  leaving.End();
  copier_->Stop();
}

TEST_F(CopierTest, WaitsForWhatIsComputed) {
  compute_.Queue();
  copier_->Post(CopyDirection::kToHost, {Copy({{BlockId(6), 0}}, 1)});
  FillBlock(6, 9);  // ends only now
  compute_.End();
  copier_->Stop();
  EXPECT_EQ(shape_.Extent(slab_, 0, 0)[0], std::byte{9});
}

TEST_F(CopierTest, WhatCannotBeComputedIsNotCopied) {
  compute_.Queue();
  compute_.End(absl::UnavailableError("the device has failed"));
  copier_->Post(CopyDirection::kToHost, {Copy({{BlockId(6), 0}}, 1)});
  compute_.FailRecords(absl::InternalError("no event"));
  copier_->Post(CopyDirection::kToHost, {Copy({{BlockId(6), 0}}, 1)});
  copier_->Stop();
  const std::vector<CopyDone> done = copier_->Drain();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].FirstError().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(done[1].FirstError().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(device_->written().empty());
}

TEST_F(CopierTest, NothingOfADamagedStoreBlockGetsToTheDevice) {
  copier_->Post(CopyDirection::kToHost, {Copy({{BlockId(6), 0}, {BlockId(2), 1}}, 2)});
  woken_.WaitForNotification();
  shape_.Extent(slab_, 2, 0)[9] ^= std::byte{1};
  copier_->Post(CopyDirection::kToDevice, {Copy({{BlockId(0), 1}}, 2)});
  copier_->Stop();
  EXPECT_EQ(copier_->Drain().back().statuses.at(0).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Holds(0, 1));
}

TEST_F(CopierTest, AFailedCopyIsReported) {
  device_->FailWith(absl::UnavailableError("gone"));
  copier_->Post(CopyDirection::kToHost, {Copy({{BlockId(6), 0}}, 1)});
  copier_->Stop();
  EXPECT_EQ(copier_->Drain().at(0).statuses.at(0).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem::copier_test
