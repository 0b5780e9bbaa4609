// Probes: what the timings say, what a peer takes of them, and both together.
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/loopback_transport.h"
#include "tests/support/transport_probe.h"
#include "transfer/fabric/link_prober.h"
#include "transfer/fabric/probe_receiver.h"

namespace tandem::probe_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr uint64_t kProbeEpoch = 5;
constexpr uint64_t kStream = kProbeStreamBit | 1;

TEST(LinkProbeTest, TakesMediansAndLeavesOutWhatAnEmptyStreamTakes) {
  const LinkProbe probe =
      Evaluate({.first = milliseconds(3),
                .empty = {microseconds(90), microseconds(100), milliseconds(50)},
                .one_small = {microseconds(104), milliseconds(9), microseconds(101)},
                .many_small = {microseconds(104 + 64 * 2), milliseconds(9), microseconds(1)},
                .bulk = {milliseconds(900), microseconds(5100), microseconds(4000)},
                .bulk_bytes = 10'000'000});
  EXPECT_EQ(probe.setup, milliseconds(3));
  EXPECT_EQ(probe.round_trip, microseconds(100));
  EXPECT_EQ(probe.operation, microseconds(2));
  EXPECT_DOUBLE_EQ(probe.gigabytes_per_second, 2.0);
}

TEST(LinkProbeTest, ANoisyClockGivesNoNonsense) {
  const Duration same = microseconds(100);
  const LinkProbe probe = Evaluate({.first = same,
                                    .empty = {same},
                                    .one_small = {2 * same},
                                    .many_small = {same},
                                    .bulk = {same},
                                    .bulk_bytes = 1'000'000});
  EXPECT_EQ(probe.operation, Duration(0));
  EXPECT_DOUBLE_EQ(probe.gigabytes_per_second, 20.0);  // of half the time, at most
}

TEST(LinkProbeTest, TheBulkTakesATenthOfASecondWithinBounds) {
  EXPECT_NEAR(static_cast<double>(BulkBytes(1 << 20, milliseconds(50))), 2 << 20, 1);
  EXPECT_EQ(BulkBytes(1 << 20, microseconds(1)), 16u << 20);
  EXPECT_NEAR(static_cast<double>(BulkBytes(1 << 20, std::chrono::seconds(2))), 52'428, 1);
  EXPECT_EQ(BulkBytes(1 << 20, std::chrono::seconds(9)), 16u << 10);
  EXPECT_EQ(BulkBytes(1 << 20, Duration(0)), 16u << 20);
}

TEST(LinkProbeTest, ASmallBulkHasSomeFrames) {
  EXPECT_EQ(BulkPayloadBytes(16 << 20, 256 << 10), 256u << 10);
  EXPECT_EQ(BulkPayloadBytes(16 << 20, 24 << 10), 24u << 10);
  EXPECT_EQ(BulkPayloadBytes(16 << 10, 256 << 10), 1u << 10);
}

// A link whose times are known: on a fake clock.
class TimedTransport final : public Transport {
 public:
  static constexpr Duration kConnect = milliseconds(1);
  static constexpr Duration kRoundTrip = microseconds(100);
  static constexpr Duration kOperation = microseconds(2);
  static constexpr double kNanosecondsPerByte = 0.5;

  explicit TimedTransport(FakeClock& clock, double nanoseconds_per_byte = kNanosecondsPerByte)
      : clock_(clock), nanoseconds_per_byte_(nanoseconds_per_byte) {}

  std::string address() const override { return "timed"; }
  absl::Status MayReach(std::string_view) const override { return absl::OkStatus(); }
  absl::StatusOr<StreamHandle> OpenStream(std::string_view, uint64_t stream, uint64_t epoch,
                                          Duration, StreamEnded ended) override {
    EXPECT_NE(stream & kProbeStreamBit, 0u);
    opened_ = clock_.Now();
    return std::make_shared<TimedStream>(*this, [=] { ended(stream, epoch, absl::OkStatus()); });
  }
  std::vector<LinkStats> links() const override { return {}; }
  TransportStats stats() const override { return {}; }

  // That posting a stream took.
  Duration longest() const { return longest_; }

 private:
  class TimedStream final : public SendStream {
   public:
    TimedStream(TimedTransport& link, std::function<void()> ended)
        : link_(link), ended_(std::move(ended)) {}
    absl::Status Post(std::span<const PostedExtent> extents) override {
      for (const PostedExtent& extent : extents) link_.Move(extent.payload.size());
      return absl::OkStatus();
    }
    absl::Status Finish() override {
      link_.TakeRoundTrip();
      ended_();
      return absl::OkStatus();
    }
    void Abort() override {}

   private:
    TimedTransport& link_;
    const std::function<void()> ended_;
  };

  void Move(size_t bytes) {
    const double ns = static_cast<double>(bytes) * nanoseconds_per_byte_;
    clock_.Advance(kOperation + nanoseconds(static_cast<int64_t>(ns)));
    longest_ = std::max(longest_, Duration(clock_.Now() - opened_));
  }
  void TakeRoundTrip() {
    clock_.Advance(connected_ ? kRoundTrip : kConnect + kRoundTrip);
    connected_ = true;
  }

  FakeClock& clock_;
  const double nanoseconds_per_byte_;
  TimePoint opened_;
  Duration longest_{};
  bool connected_ = false;
};

TEST(LinkProberTest, FindsWhatTheLinkTakes) {
  FakeClock clock;
  TimedTransport link(clock);
  LinkProber prober(32 << 10, *AllocateProbeMemory(nullptr, LinkProber::kMemoryBytes, false),
                    clock);
  const auto probe = prober.Measure(link, "peer", kProbeEpoch);
  ASSERT_TRUE(probe.ok()) << probe.status();
  EXPECT_EQ(probe->setup, TimedTransport::kConnect + TimedTransport::kRoundTrip);
  EXPECT_EQ(probe->operation, nanoseconds(2000 + 64 / 2));
  constexpr double kBulk = 16 << 20;
  constexpr double kBulkNanoseconds = kBulk / (32 << 10) * 2000 + kBulk / 2;
  EXPECT_DOUBLE_EQ(probe->gigabytes_per_second, kBulk / kBulkNanoseconds);
  EXPECT_LE(prober.bytes_sent(), 52'000'000u);
  EXPECT_GT(prober.bytes_sent(), 3 * kBulk);
}

// As those of far away, or with a shaper: the size of the bulk suits them.
TEST(LinkProberTest, SlowLinksAreMeasuredInTime) {
  for (const double bytes_per_second : {1e4, 1e5, 2e5, 1e6, 1e7}) {
    FakeClock clock;
    TimedTransport link(clock, 1e9 / bytes_per_second);
    LinkProber prober(256 << 10, *AllocateProbeMemory(nullptr, LinkProber::kMemoryBytes, false),
                      clock);
    const auto probe = prober.Measure(link, "peer", kProbeEpoch);
    ASSERT_TRUE(probe.ok()) << probe.status();
    EXPECT_NEAR(probe->gigabytes_per_second * 1e9, bytes_per_second, 0.02 * bytes_per_second);
    EXPECT_LT(link.longest(), LinkProber::kPatience) << bytes_per_second;
  }
}

FrameHeader Data(uint64_t stream, uint32_t block, uint32_t bytes) {
  return {.type = FrameType::kData,
          .stream = stream,
          .epoch = kProbeEpoch,
          .block = block,
          .payload_bytes = bytes};
}

FrameHeader CommitOf(uint64_t stream, uint64_t frames) {
  return {.type = FrameType::kCommit, .stream = stream, .epoch = kProbeEpoch, .frames = frames};
}

class ProbeReceiverTest : public testing::Test {
 protected:
  absl::Status Prepare(const FrameHeader& header) { return receiver_.Prepare(header).status(); }

  FakeClock clock_;
  ReceiverProbe next_;
  ProbeReceiver receiver_{&next_, kProbeEpoch,
                          *AllocateProbeMemory(nullptr, ProbeReceiver::kMemoryBytes, false),
                          clock_};
};

TEST_F(ProbeReceiverTest, OtherStreamsArePassedOn) {
  const FrameHeader header = Data(7, 0, 100);
  EXPECT_EQ(Prepare(header), absl::OkStatus());
  receiver_.Landed(header, absl::OkStatus());
  EXPECT_EQ(receiver_.Commit(CommitOf(7, 1)).status, absl::OkStatus());
  EXPECT_EQ(receiver_.Renewed(7, kProbeEpoch), absl::OkStatus());
  EXPECT_EQ(next_.CallsOf(7).size(), 4u);
  EXPECT_EQ(receiver_.bytes_received(), 0u);
}

TEST_F(ProbeReceiverTest, ACommitSaysWhetherAllLanded) {
  for (const uint32_t block : {0, 1}) {
    const FrameHeader header = Data(kStream, block, 100);
    ASSERT_EQ(Prepare(header), absl::OkStatus());
    receiver_.Landed(header, block == 0 ? absl::OkStatus() : absl::DataLossError("hash"));
  }
  EXPECT_TRUE(absl::IsDataLoss(receiver_.Commit(CommitOf(kStream, 2)).status));
  EXPECT_EQ(receiver_.Commit(CommitOf(kStream, 0)).status, absl::OkStatus());
  EXPECT_TRUE(next_.calls().empty());
}

TEST_F(ProbeReceiverTest, PayloadsThatLandTogetherDoNotShareAPlace) {
  std::vector<std::span<std::byte>> places;
  for (uint32_t block = 0; block < ProbeReceiver::kSlots; ++block) {
    const auto place = receiver_.Prepare(Data(kStream, block, kMaxProbePayload));
    ASSERT_TRUE(place.ok()) << place.status();
    for (const auto& other : places) EXPECT_NE(place->data(), other.data());
    places.push_back(*place);
  }
  EXPECT_TRUE(absl::IsAborted(Prepare(Data(kStream, 99, 1))));
  receiver_.Landed(Data(kStream, 3, kMaxProbePayload), absl::OkStatus());
  const auto place = receiver_.Prepare(Data(kStream, 99, 1));
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->data(), places[3].data());
}

TEST_F(ProbeReceiverTest, WhatIsTakenIsBounded) {
  EXPECT_TRUE(absl::IsInvalidArgument(Prepare(Data(kStream, 0, kMaxProbePayload + 1))));
  for (uint64_t i = 0; i < ProbeReceiver::kMaxStreams; ++i) {
    const FrameHeader header = Data(kProbeStreamBit | i, 0, 1);
    ASSERT_EQ(Prepare(header), absl::OkStatus());
    receiver_.Landed(header, absl::OkStatus());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Prepare(Data(kProbeStreamBit | 99, 0, 1))));
  clock_.Advance(ProbeReceiver::kIdle);  // their senders are gone
  EXPECT_EQ(Prepare(Data(kProbeStreamBit | 99, 0, 1)), absl::OkStatus());
}

// The payloads of one worker's probe may fill all slots while another worker begins to probe.
TEST_F(ProbeReceiverTest, AWorkerThatProbesMeanwhileIsToldToComeLater) {
  constexpr uint64_t kOther = kStream | uint64_t{1} << 40;
  for (uint32_t block = 0; block < ProbeReceiver::kSlots; ++block) {
    ASSERT_EQ(Prepare(Data(kStream, block, 100)), absl::OkStatus());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Prepare(Data(kOther, 0, 100))));
  EXPECT_TRUE(absl::IsResourceExhausted(receiver_.Commit(CommitOf(kOther, 1)).status));
  EXPECT_TRUE(absl::IsResourceExhausted(receiver_.Commit(CommitOf(kOther, 0)).status));
  for (uint32_t block = 0; block < ProbeReceiver::kSlots; ++block) {
    receiver_.Landed(Data(kStream, block, 100), absl::OkStatus());
  }
  EXPECT_EQ(receiver_.Commit(CommitOf(kStream, ProbeReceiver::kSlots)).status, absl::OkStatus());
  EXPECT_TRUE(absl::IsResourceExhausted(receiver_.Commit(CommitOf(kOther, 0)).status))
      << "a probe has many streams, and the next of the first worker may be on its way";
  clock_.Advance(ProbeReceiver::kTurnEnds);
  EXPECT_EQ(receiver_.Commit(CommitOf(kOther, 0)).status, absl::OkStatus());
  EXPECT_TRUE(absl::IsResourceExhausted(receiver_.Commit(CommitOf(kStream, 0)).status));
}

// Slots stay taken while the payload of a worker that hangs is half received.
TEST_F(ProbeReceiverTest, APayloadThatFoundNoSlotIsNoDamage) {
  for (uint32_t block = 0; block < ProbeReceiver::kSlots; ++block) {
    ASSERT_EQ(Prepare(Data(kStream, block, 100)), absl::OkStatus());
  }
  EXPECT_TRUE(absl::IsAborted(Prepare(Data(kStream + 1, 0, 100))));
  EXPECT_TRUE(absl::IsResourceExhausted(receiver_.Commit(CommitOf(kStream + 1, 1)).status));
}

TEST_F(ProbeReceiverTest, AnotherEpochIsAStranger) {
  FrameHeader header = Data(kStream, 0, 1);
  header.epoch = kProbeEpoch + 1;
  EXPECT_TRUE(absl::IsPermissionDenied(Prepare(header)));
  header = CommitOf(kStream, 0);
  header.epoch = kProbeEpoch + 1;
  EXPECT_TRUE(absl::IsPermissionDenied(receiver_.Commit(header).status));
}

TEST(ProbeTest, TwoWorkersThatProbeOneAtOnceFindItBusyAndNeverDamaged) {
  const SteadyClock clock;
  ProbeReceiver receiver(nullptr, kProbeEpoch,
                         *AllocateProbeMemory(nullptr, ProbeReceiver::kMemoryBytes, false), clock);
  LoopbackNetwork network;
  const auto there = network.NewTransport(&receiver);
  const auto also_there = network.NewTransport(&receiver);
  std::atomic<int> measured = 0;
  const auto probe_until_measured = [&](std::string address) {
    LinkProber prober(256 << 10, *AllocateProbeMemory(nullptr, LinkProber::kMemoryBytes, false),
                      clock);
    const auto here = network.NewTransport(nullptr);
    while (true) {
      const absl::Status status = prober.Measure(*here, address, kProbeEpoch).status();
      if (status.ok()) break;
      ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    }
    ++measured;
  };
  std::thread first(probe_until_measured, there->address());
  std::thread second(probe_until_measured, also_there->address());
  first.join();
  second.join();
  EXPECT_EQ(measured, 2);
}

TEST(ProbeTest, MeasuresARealLink) {
  const SteadyClock clock;
  ProbeReceiver receiver(nullptr, kProbeEpoch,
                         *AllocateProbeMemory(nullptr, ProbeReceiver::kMemoryBytes, false), clock);
  LinkProber prober(32 << 10, *AllocateProbeMemory(nullptr, LinkProber::kMemoryBytes, false),
                    clock);
  LoopbackNetwork network;
  const auto there = network.NewTransport(&receiver);
  const auto here = network.NewTransport(nullptr);
  const auto probe = prober.Measure(*here, there->address(), kProbeEpoch);
  ASSERT_TRUE(probe.ok()) << probe.status();
  EXPECT_GT(probe->gigabytes_per_second, 0);
  EXPECT_GT(probe->setup, Duration(0));
  EXPECT_EQ(receiver.bytes_received(), prober.bytes_sent());
  EXPECT_TRUE(absl::IsPermissionDenied(prober.Measure(*here, there->address(), 6).status()) ||
              absl::IsUnavailable(prober.Measure(*here, there->address(), 6).status()));
  prober.Stop();
  EXPECT_TRUE(absl::IsCancelled(prober.Measure(*here, there->address(), kProbeEpoch).status()));
}

}  // namespace
}  // namespace tandem::probe_test
