#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "engine/handoff/landing_zone.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "kvstore/kv_convert.h"
#include "kvstore/kv_layout.h"
#include "tests/support/fake_clock.h"
#include "tests/support/forwarding_device.h"

namespace tandem::landing_zone {

using absl::StatusCode;

// The life of the worker that receives, the reservation that is open, the layers of its KV, and how
// long its sender may be silent.
inline constexpr uint64_t kEpoch = 11;
inline constexpr ReservationId kId(3);
inline constexpr int32_t kLayers = 2;
inline constexpr Duration kLease = std::chrono::seconds(3);

// The CPU. Whoever waits for one of its streams finds out what happens meanwhile.
class WatchedDevice final : public ForwardingDevice {
 public:
  explicit WatchedDevice(Device& device) : ForwardingDevice(device) {}

  int num_waits = 0;
  absl::Status answer;
  std::function<void()> meanwhile = [] {};  // the next time

 private:
  class WatchedStream final : public ForwardingStream {
   public:
    WatchedStream(WatchedDevice& device, std::unique_ptr<Stream> stream)
        : ForwardingStream(std::move(stream)), device_(device) {}
    absl::Status Synchronize() override {
      ++device_.num_waits;
      std::exchange(device_.meanwhile, [] {})();
      return device_.answer;
    }

   private:
    WatchedDevice& device_;
  };

  std::unique_ptr<Stream> MakeStream(std::unique_ptr<Stream> stream) override {
    return std::make_unique<WatchedStream>(*this, std::move(stream));
  }
};

// A zone over a small pool, with one reservation of two blocks, and what a transport does to it.
class LandingZoneTest : public testing::Test {
 protected:
  LandingZoneTest() {
    zone_.Open(kId, {.blocks = kBlocks, .layout = layout_, .prompt_tokens = 16});
  }

  FrameHeader Data(uint32_t layer, uint32_t block) const {
    return {.type = FrameType::kData,
            .stream = kId.value(),
            .epoch = kEpoch,
            .layer = layer,
            .block = block,
            .payload_bytes = static_cast<uint32_t>(layout_.ExtentBytes())};
  }
  FrameHeader CommitOf(uint64_t frames) const {
    return {.type = FrameType::kCommit, .stream = kId.value(), .epoch = kEpoch, .frames = frames};
  }
  bool Acknowledged(uint64_t frames) {
    const CommitAnswer answer = zone_.Commit(CommitOf(frames));
    return answer.status.ok() && answer.missing.empty();
  }
  StatusCode Prepare(const FrameHeader& header) { return zone_.Prepare(header).status().code(); }

  void Land(uint32_t layer, uint32_t block) {
    const FrameHeader header = Data(layer, block);
    ASSERT_EQ(Prepare(header), StatusCode::kOk);
    zone_.Landed(header, absl::OkStatus());
  }
  void LandAll() {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t block = 0; block < kBlocks.size(); ++block) Land(layer, block);
    }
  }

  // What the engine was told of arrivals since the last call.
  std::vector<StatusCode> Arrivals() {
    std::vector<StatusCode> codes;
    for (const Message& message : inbox_.Drain()) {
      const auto* arrived = std::get_if<KvArrivedMessage>(&message);
      if (arrived == nullptr || arrived->reservation != kId) continue;
      codes.push_back(arrived->status.code());
    }
    return codes;
  }
  int NumDrained() {
    int drained = 0;
    for (const Message& message : inbox_.Drain()) {
      drained += std::holds_alternative<KvDrainedMessage>(message) ? 1 : 0;
    }
    return drained;
  }

  LandingZone::Conversion TwoSlots() {
    return {.slots = *ConversionSlots::Create(device_, 2, LargestExtentBytesTo(layout_)),
            .converter = *KvConverter::Create(device_, *backend_.ops, layout_, pool_)};
  }

  const std::vector<int32_t> kBlocks = {5, 2};
  const KvLayout layout_ = {
      .num_layers = kLayers, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8};
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(static_cast<size_t>(layout_.BlockBytes()) * 8);
  const KvPoolView pool_ = layout_.PoolView(memory_.data(), 8);
  const Backend backend_ = *OpenBackend("cpu", {.num_threads = 1});
  WatchedDevice device_{*backend_.device};
  FakeClock clock_;
  Inbox inbox_{16};
  LandingZone zone_{
      {.layout = layout_, .epoch = kEpoch, .lease = kLease}, pool_, TwoSlots(), clock_, inbox_};
};

}  // namespace tandem::landing_zone
