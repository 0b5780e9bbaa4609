#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "engine/handoff/landing_zone.h"
#include "kernels/registry.h"
#include "kvstore/kv_convert.h"
#include "tests/support/fake_clock.h"
#include "transfer/framed/side_channel_payloads.h"
#include "transfer/framed/staged_payloads.h"

// The decode worker that hostile senders speak to, with a reservation of each sort.

namespace tandem::inbound_fuzz {

inline constexpr uint64_t kEpoch = 11;
inline constexpr Duration kLease = std::chrono::seconds(3);
inline constexpr int32_t kLayers = 2;
inline constexpr int32_t kPoolBlocks = 10;
inline constexpr std::byte kUntouched{0xEE};
inline constexpr size_t kLargestExtent = 512;

inline const KvLayout kLayout = {
    .num_layers = kLayers, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8};
inline const KvLayout kWideLayout = {
    .num_layers = kLayers, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 16};

// Of an honest sender each byte of a layer is the same, whatever the layout.
inline std::byte ByteOf(uint64_t stream, uint32_t layer) {
  return static_cast<std::byte>(1 + stream % 4 * kLayers + layer % kLayers);
}

// A reservation of the worker.
struct Opened {
  ReservationId id;
  LandingPlan plan;
  bool closed = false;
  bool complete = false;  // the engine was told so
};

// One of the pool's layout, one that has part of its prompt cached, one that is to be converted.
inline std::vector<Opened> Reservations() {
  return {
      {.id = ReservationId(3), .plan = {.blocks = {5, 2}, .layout = kLayout, .prompt_tokens = 16}},
      {.id = ReservationId(4),
       .plan = {.blocks = {7, 1, 3}, .layout = kLayout, .prompt_tokens = 20, .cached_tokens = 8}},
      {.id = ReservationId(5),
       .plan = {.blocks = {0, 8}, .layout = kWideLayout, .prompt_tokens = 16}}};
}

inline const Backend& Cpu() {
  static const Backend cpu = *OpenBackend("cpu", {.num_threads = 1});
  return cpu;
}

// A decode worker as far as frames see it. It checks that what arrives whole is what was hashed, and that
// nothing is written where nobody reserved.
class Worker {
 public:
  enum class Ways : uint8_t { kDirect, kStaged, kSideChannel };

  explicit Worker(Ways ways) {
    Device& device = *Cpu().device;
    if (ways == Ways::kDirect) path_ = std::make_unique<DirectPayloads>();
    if (ways == Ways::kStaged) {
      path_ = *NewStagedPayloads(device, kLargestExtent, 2 * 4096, &zone_);
    }
    if (ways == Ways::kSideChannel) path_ = *NewSideChannelPayloads(device, zone_);
    for (const Opened& opened : opened_) zone_.Open(opened.id, opened.plan);
  }

  PayloadPath& path() { return *path_; }
  FrameReceiver& receiver() { return zone_; }
  std::vector<Opened>& opened() { return opened_; }

  void Close(Opened& opened) {
    if (std::exchange(opened.closed, true)) return;
    if (zone_.Close(opened.id) == LandingZone::Closing::kDraining) ++draining_;
  }
  void Renew(const Opened& opened) {
    if (!opened.closed) zone_.Renew(opened.id);
  }
  void Wait(Duration duration) { clock_.Advance(duration); }
  void ShutDown() { zone_.ShutDown(); }

  void Listen() {
    for (const Message& message : inbox_.Drain()) {
      if (const auto* arrived = std::get_if<KvArrivedMessage>(&message)) Arrived(*arrived);
      if (std::holds_alternative<KvDrainedMessage>(message)) --draining_;
    }
  }

  // Once no connection is left.
  void ExpectNothingUnderWay() {
    Listen();
    TANDEM_CHECK(draining_ == 0, "a landing was not drained");
    for (Opened& opened : opened_) {
      if (!opened.closed) Close(opened);
      TANDEM_CHECK(draining_ == 0, "a place was not given back");
    }
    ExpectUntouched();
  }

 private:
  void Arrived(const KvArrivedMessage& arrived) {
    if (!arrived.status.ok()) return;
    const auto opened = std::ranges::find_if(
        opened_, [&arrived](const Opened& one) { return one.id == arrived.reservation; });
    TANDEM_CHECK(opened != opened_.end() && !opened->complete, "what arrived twice");
    opened->complete = true;
    ExpectWhole(*opened);
  }

  // Token by token: that is how extents of other layouts are brought here.
  void ExpectWhole(const Opened& opened) const {
    const LandingPlan& plan = opened.plan;
    const size_t token_bytes = static_cast<size_t>(kLayout.ExtentBytes()) / 2 / 8;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const std::byte expected = ByteOf(opened.id.value(), layer);
      for (int32_t token = plan.cached_tokens; token < plan.prompt_tokens; ++token) {
        const std::byte* block =
            pool_.Extent(static_cast<int32_t>(layer), plan.blocks[static_cast<size_t>(token / 8)]);
        for (const size_t part : {size_t{0}, static_cast<size_t>(kLayout.ExtentBytes()) / 2}) {
          const std::byte* begin = block + part + static_cast<size_t>(token % 8) * token_bytes;
          TANDEM_CHECK(std::all_of(begin, begin + token_bytes,
                                   [expected](std::byte byte) { return byte == expected; }),
                       "complete, but not what was hashed");
        }
      }
    }
  }

  bool IsWritten(int32_t block) const {
    for (const Opened& opened : opened_) {
      const auto first = static_cast<size_t>(opened.plan.cached_tokens / 8);
      const auto& blocks = opened.plan.blocks;
      if (std::find(blocks.begin() + static_cast<ptrdiff_t>(first), blocks.end(), block) !=
          blocks.end()) {
        return true;
      }
    }
    return false;
  }

  // What belongs to nobody, or is cached.
  void ExpectUntouched() const {
    for (int32_t block = 0; block < kPoolBlocks; ++block) {
      if (IsWritten(block)) continue;
      for (int32_t layer = 0; layer < kLayers; ++layer) {
        const std::byte* begin = pool_.Extent(layer, block);
        TANDEM_CHECK(std::all_of(begin, begin + kLayout.ExtentBytes(),
                                 [](std::byte byte) { return byte == kUntouched; }),
                     "a block was written that nobody reserved");
      }
    }
  }

  std::vector<Opened> opened_ = Reservations();
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(static_cast<size_t>(kLayout.BlockBytes()) * kPoolBlocks, kUntouched);
  const KvPoolView pool_ = kLayout.PoolView(memory_.data(), kPoolBlocks);
  FakeClock clock_;
  Inbox inbox_{16};
  LandingZone zone_{
      {.layout = kLayout, .epoch = kEpoch, .lease = kLease},
      pool_,
      {.slots = *ConversionSlots::Create(*Cpu().device, 2, LargestExtentBytesTo(kLayout)),
       .converter = *KvConverter::Create(*Cpu().device, *Cpu().ops, kLayout, pool_)},
      clock_,
      inbox_};
  std::unique_ptr<PayloadPath> path_;
  int draining_ = 0;
};

}  // namespace tandem::inbound_fuzz
