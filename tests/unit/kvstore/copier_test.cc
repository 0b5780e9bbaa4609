#include "kvstore/tier/copier.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "tests/unit/kvstore/gated_device.h"

namespace tandem {
namespace {

KvLayout Layout() { return {.num_layers = 3, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8}; }

class CopierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_ = *OpenBackend("cpu", {.num_threads = 1});
    device_ = std::make_unique<GatedDevice>(*backend_.device);
    memory_ = *device_->Allocate(8 * Layout().BlockBytes());
    slab_.resize(shape_.total_bytes());
    const Copier::Options options = {
        .layout = Layout(), .layout_fingerprint = 7, .pool = View(), .wake = [this] { Wake(); }};
    copier_ = std::make_unique<Copier>(options, *device_->NewStream());
    for (int32_t block = 0; block < 8; ++block) FillBlock(block, block + 1);
  }

  void Wake() {
    if (!woken_.HasBeenNotified()) woken_.Notify();
  }

  KvPoolView View() const { return Layout().PoolView(memory_.data(), 8); }

  std::span<std::byte> Extent(int32_t layer, int32_t block) {
    return {View().Extent(layer, block), static_cast<size_t>(Layout().ExtentBytes())};
  }
  void FillBlock(int32_t block, int32_t value) {
    for (int32_t layer = 0; layer < 3; ++layer) {
      std::ranges::fill(Extent(layer, block), static_cast<std::byte>(value + 16 * layer));
    }
  }
  bool Holds(int32_t block, int32_t value) {
    for (int32_t layer = 0; layer < 3; ++layer) {
      const auto expected = static_cast<std::byte>(value + 16 * layer);
      if (std::ranges::count(Extent(layer, block), expected) != Layout().ExtentBytes())
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
  const StoreBlockShape shape_{Layout()};
  std::vector<std::byte> slab_;
  absl::Notification woken_;
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

TEST_F(CopierTest, InTheOrderOfPosting) {
  device_->CloseGate();
  copier_->Post(CopyDirection::kToHost, {Copy({{BlockId(6), 0}, {BlockId(2), 1}}, 2)});
  copier_->Post(CopyDirection::kToDevice, {Copy({{BlockId(0), 1}}, 2)});
  EXPECT_TRUE(copier_->Drain().empty()) << "Post waits for nothing";
  device_->OpenGate();
  woken_.WaitForNotification();
  copier_->Stop();
  EXPECT_TRUE(Holds(0, 3)) << "what block 2 held";
  EXPECT_TRUE(Holds(1, 2)) << "untouched";
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
}  // namespace tandem
