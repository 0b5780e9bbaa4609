// What every transport promises when frames are lost or damaged, peers are slow, silent or
// unauthenticated peers (docs/kv_wire_format.md), run over all of them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/transport_fixture.h"

namespace tandem::transport_recovery_test {
namespace {

using Fault = FrameAction::Kind;

class RecoveryTest : public TransportFixture {
 protected:
  LinkStats Link() const {
    const std::vector<LinkStats> links = sender_->links();
    EXPECT_EQ(links.size(), 1u);
    return links.empty() ? LinkStats() : links.front();
  }

  // All bytes of SendWhole(stream, ...) are there, however often they were sent.
  void ExpectBytes(uint64_t stream, uint32_t count, size_t size) {
    EXPECT_EQ(ends_.Wait(stream), absl::OkStatus());
    for (uint32_t block = 0; block < count; ++block) {
      EXPECT_EQ(receiver_probe_.BytesOf(stream, 0, block),
                PatternBytes(size, stream * 1000 + block))
          << "stream " << stream << " block " << block;
    }
  }
};

// Data frames meet `fault` the first time that `chosen` names them.
FrameHook OnceFor(std::set<uint32_t> chosen, Fault fault) {
  return [chosen = std::move(chosen), fault](const ObservedFrame& frame) mutable {
    const bool hit = BringsPayload(frame.header) && chosen.erase(frame.header.block) > 0;
    return FrameAction{.kind = hit ? fault : Fault::kPass, .seed = frame.header.block};
  };
}

TEST_P(RecoveryTest, DamagedPayloadsAreCountedAndComeAgain) {
  StartWithFaults(OnceFor({3, 17, 18}, Fault::kFlipPayload));
  SendWhole(1, 40, 5000);
  ExpectBytes(1, 40, 5000);
  EXPECT_EQ(receiver_->stats().refused.corrupted, 3u);
  EXPECT_EQ(receiver_->stats().refused.closed, 0u);
  EXPECT_EQ(Link().resent_frames, 3u);
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kCommit), 2);
  ExpectOneEndEach({1});
}

TEST_P(RecoveryTest, LostFramesComeAgain) {
  StartWithFaults(OnceFor({0, 5, 6, 39}, Fault::kDrop));
  SendWhole(1, 40, 5000);
  ExpectBytes(1, 40, 5000);
  EXPECT_EQ(Link().resent_frames, 4u);
  ExpectOneEndEach({1});
}

TEST_P(RecoveryTest, FramesThatComeTwiceOrInAnotherOrderDoNoHarm) {
  StartWithFaults([](const ObservedFrame& frame) {
    if (!BringsPayload(frame.header)) return FrameAction{};
    return FrameAction{.kind = frame.header.block % 2 == 0 ? Fault::kDuplicate : Fault::kSwap};
  });
  SendWhole(1, 41, 5000);
  ExpectBytes(1, 41, 5000);
  SendWhole(2, 41, 5000);
  ExpectBytes(2, 41, 5000);
  ExpectOneEndEach({1, 2});
}

// What is lost is no longer under way, so that the window does not shrink with every loss.
TEST_P(RecoveryTest, LostFramesGiveTheirCreditBack) {
  options_.credit_window_bytes = 64 << 10;
  StartWithFaults([](const ObservedFrame& frame) {
    const bool data = BringsPayload(frame.header);
    return FrameAction{.kind = data && frame.header.layer == 1 ? Fault::kDrop : Fault::kPass};
  });
  receiver_probe_.commit_policy = [](const FrameHeader&) { return CommitAnswer{}; };
  const auto payload = Payload(20000, 1);
  for (uint64_t stream = 1; stream <= 20; ++stream) {
    ASSERT_EQ(Open(stream), absl::OkStatus());
    ASSERT_EQ(Post(stream, 1, 0, payload), absl::OkStatus());
    ASSERT_EQ(streams_.Finish(*sender_, {stream, kEpoch}), absl::OkStatus());
    ASSERT_EQ(ends_.Wait(stream), absl::OkStatus());
  }
  SendWhole(21, 30, 20000);
  ExpectBytes(21, 30, 20000);
}

TEST_P(RecoveryTest, OnlyWhatIsMissingComesAgain) {
  std::atomic<int> commits = 0;
  receiver_probe_.commit_policy = [&](const FrameHeader&) -> CommitAnswer {
    if (++commits == 1) return {.missing = {{0, 3}, {0, 1}}};
    return {};
  };
  Start();
  SendWhole(1, 8, 3000);
  ExpectBytes(1, 8, 3000);
  std::vector<int> times(8);
  for (const auto& call : receiver_probe_.CallsOf(1)) {
    if (call.kind == Kind::kLanded) ++times[call.header.block];
  }
  EXPECT_EQ(times, (std::vector<int>{1, 2, 1, 2, 1, 1, 1, 1}));
  EXPECT_EQ(commits, 2);
}

TEST_P(RecoveryTest, AfterEightRoundsItIsDataLoss) {
  receiver_probe_.commit_policy = [&](const FrameHeader&) -> CommitAnswer {
    return {.missing = {{0, 1}}};
  };
  Start();
  SendWhole(1, 3, 100);
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kCommit), 9) << "the first one, and one per round";
  EXPECT_EQ(Link().resent_frames, 8u);
  EXPECT_EQ(Link().streams_failed, 1u);
  ExpectOneEndEach({1});
}

TEST_P(RecoveryTest, WhatWasNeverPostedCannotBeAskedFor) {
  receiver_probe_.commit_policy = [&](const FrameHeader&) -> CommitAnswer {
    return {.missing = {{7, 7}}};
  };
  Start();
  SendWhole(1, 3, 100);
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kDataLoss);
  ExpectOneEndEach({1});
}

TEST_P(RecoveryTest, AFrameAloneMayBeRefused) {
  receiver_probe_.prepare_policy = [&](const FrameHeader& header) -> absl::Status {
    const bool busy = receiver_probe_.Count(1, Kind::kCommit) == 0;
    if (header.block == 2 && busy) return absl::AbortedError("busy");
    return absl::OkStatus();
  };
  Start();
  SendWhole(1, 5, 3000);
  ExpectBytes(1, 5, 3000);
  EXPECT_EQ(Link().resent_frames, 1u);
  EXPECT_EQ(receiver_->stats().refused.stale, 0u);
}

TEST_P(RecoveryTest, AHeaderThatIsWrongClosesAllConnectionsOfTheGroup) {
  StartWithFaults(OnceFor({4}, Fault::kFlipHeader));
  ASSERT_EQ(Open(2), absl::OkStatus());
  SendWhole(1, 40, 5000);
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ends_.Wait(2).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(receiver_->stats().refused.malformed, 1u);
  EXPECT_EQ(receiver_->stats().refused.closed, 1u);
  SendWhole(3, 40, 5000);
  ExpectBytes(3, 40, 5000);
  EXPECT_EQ(Link().connects, 2u);
  ExpectOneEndEach({1, 2, 3});
}

TEST_P(RecoveryTest, AConnectionThatIsCutEndsTheStreamsOfItsGroup) {
  for (const Fault fault : {Fault::kCutBefore, Fault::kCutInside, Fault::kCutAfter}) {
    StartWithFaults(OnceFor({4}, fault));
    EndProbe ends;
    const auto payload = Payload(5000, 1);
    for (uint64_t stream = 1; stream <= 2; ++stream) {
      ASSERT_EQ(streams_.Open(*sender_, receiver_->address(), stream, kEpoch, Duration::zero(),
                              ends.Callback()),
                absl::OkStatus());
    }
    for (uint32_t block = 0; block < 40; ++block) {
      ASSERT_EQ(Post(1, 0, block, payload), absl::OkStatus());
    }
    EXPECT_EQ(ends.Wait(1).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ends.Wait(2).code(), absl::StatusCode::kUnavailable);
    sender_.reset();
    receiver_.reset();
    EXPECT_EQ(ends.total(), 2);
    EXPECT_EQ(receiver_probe_.Count(1, Kind::kPrepare), receiver_probe_.Count(1, Kind::kLanded));
  }
}

TEST_P(RecoveryTest, SendersTellThatTheyLive) {
  Start();
  ASSERT_EQ(streams_.Open(*sender_, receiver_->address(), 1, kEpoch, std::chrono::milliseconds(2),
                          ends_.Callback()),
            absl::OkStatus());
  EXPECT_TRUE(receiver_probe_.WaitFor(1, Kind::kRenewed, 5));
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1), absl::OkStatus());
  ASSERT_EQ(Open(2), absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*sender_, {2, kEpoch}), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(2), absl::OkStatus());
  EXPECT_EQ(receiver_probe_.Count(2, Kind::kRenewed), 0);
}

// Opening it woke nobody: it is told of at the next turn.
TEST_P(RecoveryTest, ASenderTellsThatItLivesThoughItPostsNothing) {
  Start();
  ASSERT_EQ(streams_.Open(*sender_, receiver_->address(), 1, kEpoch, std::chrono::seconds(20),
                          ends_.Callback()),
            absl::OkStatus());
  EXPECT_TRUE(receiver_probe_.WaitFor(1, Kind::kRenewed, 1));
  EXPECT_EQ(ends_.total(), 0);
}

TEST_P(RecoveryTest, ARenewalThatComesTooLateEndsTheStream) {
  receiver_probe_.renewed_policy = [](uint64_t) { return NotFound("it lapsed"); };
  Start();
  ASSERT_EQ(streams_.Open(*sender_, receiver_->address(), 1, kEpoch, std::chrono::milliseconds(2),
                          ends_.Callback()),
            absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(receiver_->stats().refused.stale, 1u);
  ExpectOneEndEach({1});
}

TEST_P(RecoveryTest, CreditBoundsWhatIsUnderWay) {
  constexpr uint64_t kWindow = 64 << 10;
  options_.credit_window_bytes = kWindow;
  absl::Notification release;
  receiver_probe_.prepare_policy = [&](const FrameHeader&) {
    release.WaitForNotification();
    return absl::OkStatus();
  };
  Start();
  SendWhole(1, 100, 16 << 10);
  const auto in_flight = [&] {
    const std::vector<LinkStats> links = sender_->links();
    return links.empty() ? 0 : links.front().bytes_in_flight;
  };
  while (in_flight() < kWindow) std::this_thread::yield();
  WaitUntilSenderHasTakenCommands(2);
  const LinkStats held = sender_->links().front();
  EXPECT_EQ(held.bytes_in_flight, kWindow);
  EXPECT_EQ(held.payload_bytes, kWindow);
  release.Notify();
  ExpectBytes(1, 100, 16 << 10);
  EXPECT_EQ(sender_->links().front().bytes_in_flight, 0u);
}

// What is left of the window is not enough for the next frame: the rest must come back, too.
TEST_P(RecoveryTest, SmallRestsOfCreditComeBack) {
  options_.credit_window_bytes = 1000;
  Start();
  ASSERT_EQ(Open(1), absl::OkStatus());
  for (uint32_t block = 0; block < 20; ++block) {
    ASSERT_EQ(Post(1, 0, block, Payload(block % 2 == 0 ? 200 : 900, block)), absl::OkStatus());
  }
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1), absl::OkStatus());
  EXPECT_EQ(Link().bytes_in_flight, 0u);
}

// The stall timeout would come a day later.
TEST_P(RecoveryTest, ALostCreditComesAgainWithTheNextRenewal) {
  constexpr uint64_t kWindow = 1000;
  options_.credit_window_bytes = kWindow;
  options_.stall_timeout = std::chrono::hours(24);
  std::set<bool> lost;  // of the first credit, and of those for what was consumed
  StartWithFaultyAnswers([&lost](const ObservedFrame& frame) {
    const bool first_of_its_kind = frame.header.type == FrameType::kCredit &&
                                   lost.insert(frame.header.frames > kWindow).second;
    return FrameAction{.kind = first_of_its_kind ? Fault::kDrop : Fault::kPass};
  });
  ASSERT_EQ(Open(1, std::chrono::milliseconds(10)), absl::OkStatus());
  for (uint32_t block = 0; block < 2; ++block) {
    ASSERT_EQ(Post(1, 0, block, Payload(700, 1000 + block)), absl::OkStatus());
  }
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  ExpectBytes(1, 2, 700);
  EXPECT_EQ(Link().connects, 1u);
  ExpectOneEndEach({1});
  EXPECT_EQ(lost.size(), 2u);
}

// Whatever goes on being renewed: a receiver that takes nothing of a stream is left.
TEST_P(RecoveryTest, RenewalsDoNotHideThatNothingMoves) {
  options_.credit_window_bytes = 1000;
  options_.stall_timeout = std::chrono::milliseconds(50);
  StartWithFaults([](const ObservedFrame& frame) {
    const bool data = BringsPayload(frame.header);
    return FrameAction{.kind = data ? Fault::kDrop : Fault::kPass};
  });
  ASSERT_EQ(Open(1, std::chrono::milliseconds(5)), absl::OkStatus());
  ASSERT_EQ(Post(1, 0, 0, Payload(700, 1)), absl::OkStatus());
  ASSERT_EQ(Post(1, 0, 1, Payload(700, 2)), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
  ExpectOneEndEach({1});
}

TEST_P(RecoveryTest, ARenewalComesBeforeAnyData) {
  Start();
  ASSERT_EQ(Open(1, std::chrono::hours(1)), absl::OkStatus());
  EXPECT_TRUE(receiver_probe_.WaitFor(1, Kind::kRenewed, 1));
  ASSERT_EQ(Post(1, 0, 0, Payload(700, 1000)), absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  ExpectArrived(1, 1, 700);
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kRenewed), 1);
}

TEST_P(RecoveryTest, AFrameLargerThanTheWindowGoesAlone) {
  options_.credit_window_bytes = 1000;
  Start();
  SendWhole(1, 20, 3000);
  SendWhole(2, 20, 700);
  ExpectBytes(1, 20, 3000);
  ExpectBytes(2, 20, 700);
}

TEST_P(RecoveryTest, StrangersAreRefusedCountedAndCutOff) {
  receiver_probe_.prepare_policy = [](const FrameHeader& header) -> absl::Status {
    if (header.stream == 1) return absl::PermissionDeniedError("never given out");
    return absl::OkStatus();
  };
  Start();
  ASSERT_EQ(Open(2), absl::OkStatus());
  SendWhole(1, 3, 1000);
  const absl::StatusCode code = ends_.Wait(1).code();
  EXPECT_TRUE(code == absl::StatusCode::kPermissionDenied || code == absl::StatusCode::kUnavailable)
      << code;
  EXPECT_EQ(ends_.Wait(2).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(receiver_->stats().refused.unauthenticated, 1u);
  EXPECT_EQ(receiver_->stats().refused.closed, 1u);
  SendWhole(3, 3, 1000);
  ExpectBytes(3, 3, 1000);
}

TEST_P(RecoveryTest, LateFramesAreRefusedAndTheConnectionLives) {
  receiver_probe_.prepare_policy = [](const FrameHeader& header) -> absl::Status {
    if (header.stream == 1) return NotFound("it has ended");
    return absl::OkStatus();
  };
  Start();
  SendWhole(1, 3, 1000);
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kNotFound);
  SendWhole(2, 3, 1000);
  ExpectBytes(2, 3, 1000);
  EXPECT_EQ(receiver_->stats().refused.stale, 1u);
  EXPECT_EQ(receiver_->stats().refused.closed, 0u);
  EXPECT_EQ(Link().connects, 1u);
  EXPECT_EQ(Link().streams, 2u);
  EXPECT_EQ(Link().streams_failed, 1u);
}

// Others of its connection go on, and of its stream: it may be the rest of what was sent twice.
TEST_P(RecoveryTest, FramesForWhatIsCompleteAreDroppedAndCounted) {
  receiver_probe_.prepare_policy = [](const FrameHeader& header) -> absl::Status {
    if (header.stream == 1 && header.block < 2) return absl::AlreadyExistsError("it is complete");
    return absl::OkStatus();
  };
  receiver_probe_.commit_policy = [](const FrameHeader&) { return CommitAnswer{}; };
  Start();
  SendWhole(1, 3, 1000);
  EXPECT_EQ(ends_.Wait(1), absl::OkStatus());
  EXPECT_EQ(receiver_probe_.BytesOf(1, 0, 2), PatternBytes(1000, 1002));
  EXPECT_TRUE(receiver_probe_.BytesOf(1, 0, 0).empty());
  EXPECT_EQ(receiver_->stats().refused.stale, 2u);
  EXPECT_EQ(receiver_->stats().refused.unauthenticated, 0u);
  EXPECT_EQ(receiver_->stats().refused.closed, 0u);
  EXPECT_EQ(Link().connects, 1u);
  ExpectOneEndEach({1});
}

// Never faster; how much slower is the machine's affair (SendRateTest has the exact rate).
TEST_P(RecoveryTest, TheRateOfALinkIsBounded) {
  constexpr uint64_t kRate = 8'000'000;
  options_.max_bytes_per_second = kRate;
  Start();
  const auto begin = std::chrono::steady_clock::now();
  SendWhole(1, 100, 20000);
  ExpectBytes(1, 100, 20000);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  // The last frame and a hundredth of a second may go on credit.
  EXPECT_GE(took.count(), 99 * 20000.0 / kRate - 0.01);
}

INSTANTIATE_TEST_SUITE_P(All, RecoveryTest, ::testing::ValuesIn(kFabrics), FabricName);

}  // namespace
}  // namespace tandem::transport_recovery_test
