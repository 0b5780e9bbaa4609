// Slow links from end to end: real transports under a fabric, hand-offs as a prefill sends them.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "tests/support/transport_probe.h"
#include "transfer/fabric.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/ipc/ipc_medium.h"
#include "transfer/loopback/loopback_transport.h"
#include "transfer/shm/shm_medium.h"
#include "transfer/tcp/tcp_medium.h"

namespace tandem {
namespace {

constexpr uint64_t kEpoch = 7;
constexpr size_t kExtent = 8 << 10;
constexpr uint32_t kBlocks = 64;
constexpr uint32_t kLayers = 8;
constexpr size_t kHandOffBytes = kExtent * kBlocks * kLayers;  // 4 MiB

TimePoint Now() { return std::chrono::steady_clock::now(); }

void SpinUntil(TimePoint when) {
  while (Now() < when) std::this_thread::yield();
}

// Takes all that comes, and forgets it; as slowly as the test wants from some moment on.
class SlowSink final : public FrameReceiver {
 public:
  // 0: as fast as it goes. From any thread.
  void SetRate(double bytes_per_second) { bytes_per_second_ = bytes_per_second; }

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override {
    const size_t place = header.layer * kBlocks + header.block;
    return std::span(memory_).subspan(place * kExtent, header.payload_bytes);
  }
  void Landed(const FrameHeader& header, const absl::Status& status) override {
    EXPECT_EQ(status, absl::OkStatus());
    const double rate = bytes_per_second_;
    if (rate == 0) return;
    const auto time_of = [rate](double bytes) {
      return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(bytes / rate));
    };
    // A thread that waits for a core makes up for some of it.
    free_at_ = std::max(Now() - time_of(kSlackBytes), free_at_) + time_of(header.payload_bytes);
    SpinUntil(free_at_);
  }
  CommitAnswer Commit(const FrameHeader&) override { return {.status = absl::OkStatus()}; }
  absl::Status Renewed(uint64_t, uint64_t) override { return absl::OkStatus(); }

 private:
  static constexpr double kSlackBytes = 128 << 10;

  std::vector<std::byte> memory_ = std::vector<std::byte>(kHandOffBytes);
  std::atomic<double> bytes_per_second_ = 0;
  TimePoint free_at_{};  // the transport's thread's
};

// As a prefill that takes every core: threads that never wait.
class Load {
 public:
  Load() {
    for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
      threads_.emplace_back([this] {
        while (!over_) sum_.fetch_add(1, std::memory_order_relaxed);
      });
    }
  }
  ~Load() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::atomic<uint64_t> sum_ = 0;
  std::vector<std::thread> threads_;
};

class LinkAlarmTest : public ::testing::TestWithParam<std::string> {
 protected:
  FabricPart Part() {
    return {.name = GetParam(),
            .open = [this](FrameReceiver* receiver, std::span<const std::byte> probes)
                -> absl::StatusOr<std::unique_ptr<Transport>> {
              ASSIGN_OR_RETURN(std::unique_ptr<Medium> medium, NewMedium(probes));
              return NewFramedTransport({.credit_window_bytes = CreditWindow(),
                                         .max_bytes_per_second = bandwidth_,
                                         .device = cpu_.device.get()},
                                        std::move(medium), receiver);
            }};
  }
  absl::StatusOr<std::unique_ptr<Medium>> NewMedium(std::span<const std::byte> probes) {
    if (GetParam() == "loopback") return network_.NewMedium();
    if (GetParam() == "tcp") return TcpMedium::Open({});
    if (GetParam() == "shm") return ShmMedium::Open({.device = cpu_.device.get()});
    IpcOptions ipc = {.device = cpu_.device.get(), .shared = {pool_.bytes()}};
    if (!probes.empty()) ipc.shared.push_back(probes);
    return IpcMedium::Open(ipc);
  }
  // The workers'.
  static uint64_t CreditWindow() {
    return GetParam() == "ipc" ? kLaneWindowBytes : FramedOptions().credit_window_bytes;
  }
  // Both sides, and the probe.
  void Start() {
    receiver_ = Open(&sink_, 0);
    sender_ = Open(nullptr, kExtent);
    SeePeer();
    while (Link().stats.probe_gigabytes_per_second == 0) std::this_thread::yield();
  }
  std::unique_ptr<Fabric> Open(FrameReceiver* receiver, size_t probe_extent_bytes) {
    auto fabric = Fabric::Open({.epoch = kEpoch,
                                .probe_extent_bytes = probe_extent_bytes,
                                .device = cpu_.device.get(),
                                .share_probes = true},
                               {Part()}, receiver, clock_);
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    return *std::move(fabric);
  }
  // As with every heartbeat.
  void SeePeer() {
    sender_->SetPeers({{.name = "decode-0", .epoch = kEpoch, .address = receiver_->address()}});
  }
  PeerLink Link() { return sender_->peer_links().at(0); }

  void HandOff(Duration compute) {
    Post(++streams_, compute);
    AwaitEnds(streams_, streams_);
  }
  // As many as a busy prefill has under way: a link that is slower than it has work that waits.
  void HandOffsTogether() {
    constexpr uint64_t kTogether = 4;
    for (uint64_t i = 0; i < kTogether; ++i) Post(++streams_, Duration::zero());
    AwaitEnds(streams_ - kTogether + 1, streams_);
  }
  void AwaitEnds(uint64_t first, uint64_t last) {
    for (uint64_t stream = first; stream <= last; ++stream) {
      ASSERT_EQ(ends_.Wait(stream), absl::OkStatus());
    }
    SeePeer();
  }
  // A burst for each layer, `compute` apart.
  void Post(uint64_t stream, Duration compute) {
    ASSERT_EQ(sender_->OpenStream(receiver_->address(), stream, kEpoch, Duration::zero(),
                                  ends_.Callback()),
              absl::OkStatus());
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      SpinUntil(Now() + compute);
      std::vector<PostedExtent> extents;
      for (uint32_t block = 0; block < kBlocks; ++block) {
        const size_t place = (layer * kBlocks + block) * kExtent;
        extents.push_back(
            {.layer = layer, .block = block, .payload = pool_.bytes().subspan(place, kExtent)});
      }
      ASSERT_EQ(sender_->Post(stream, kEpoch, extents), absl::OkStatus());
    }
    ASSERT_EQ(sender_->FinishStream(stream, kEpoch), absl::OkStatus());
  }
  // Far below the probe. Of a probe that a busy machine held up, no more than is needed: some 50 MB
  // have to go at this rate.
  double SlowRate() {
    const double best = Link().stats.best_gigabytes_per_second * 1e9;
    return std::max(best / 50, std::min(best / 8, 4e6));
  }
  // False when kPatience is over.
  bool HandOffUntilAlarmIs(bool on) {
    const absl::Time end = absl::Now() + kPatience;
    while (Link().stats.alarm != on && absl::Now() < end) HandOffsTogether();
    return Link().stats.alarm == on;
  }

  const SteadyClock clock_;
  const Backend cpu_ = *OpenBackend("cpu", {.num_threads = 1});
  const DeviceBuffer pool_ = *cpu_.device->AllocateShared(kHandOffBytes);
  LoopbackNetwork network_;
  uint64_t bandwidth_ = 0;  // of the senders' shapers
  SlowSink sink_;
  EndProbe ends_;
  uint64_t streams_ = 0;
  std::unique_ptr<Fabric> receiver_;
  std::unique_ptr<Fabric> sender_;
};

TEST_P(LinkAlarmTest, SmallHandOffsUnderLoadRaiseNone) {
  Start();
  const Load load;
  for (int i = 0; i < 48; ++i) {  // 200 MB
    HandOff(std::chrono::milliseconds(1));
    const LinkStats link = Link().stats;
    ASSERT_EQ(link.alarms, 0u) << link.gigabytes_per_second << " of "
                               << link.best_gigabytes_per_second << " GB/s after " << i;
  }
  RecordProperty("probe", std::to_string(Link().stats.best_gigabytes_per_second));
  RecordProperty("of_late", std::to_string(Link().stats.gigabytes_per_second));
}

TEST_P(LinkAlarmTest, ALinkThatBecomesSlowRaisesItAndEndsItWhenItIsWell) {
  Start();
  EXPECT_FALSE(Link().stats.alarm);
  sink_.SetRate(SlowRate());
  EXPECT_TRUE(HandOffUntilAlarmIs(true));
  EXPECT_EQ(Link().stats.alarms, 1u);
  sink_.SetRate(0);
  EXPECT_TRUE(HandOffUntilAlarmIs(false));
  EXPECT_EQ(Link().stats.alarms, 1u);
}

// What KV moves at compares with what the probe found, be the bursts small. On a machine that is
// busy either may be less than the shaper allows.
TEST_P(LinkAlarmTest, TheRateOfLateOfAShapedLinkIsThatOfItsProbe) {
  bandwidth_ = 20'000'000;
  Start();
  for (int i = 0; i < 10; ++i) HandOff(std::chrono::milliseconds(1));
  const LinkStats link = Link().stats;
  EXPECT_LT(link.best_gigabytes_per_second, 0.03);
  EXPECT_LT(link.gigabytes_per_second, 0.03);
  EXPECT_GT(link.gigabytes_per_second, link.best_gigabytes_per_second / 4);
  EXPECT_EQ(link.alarms, 0u);
}

INSTANTIATE_TEST_SUITE_P(Transports, LinkAlarmTest,
                         ::testing::Values("loopback", "tcp", "shm", "ipc"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem
