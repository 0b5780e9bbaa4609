// The two ends of a connection, without the connection: what may be sent next, and when a commit or
// a credit is due.
#include "transfer/framed/peer_streams.h"

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "tests/support/lone_streams.h"
#include "tests/support/transport_probe.h"
#include "transfer/framed/receive_credit.h"

namespace tandem::peer_streams_test {
namespace {

using std::chrono::milliseconds;
using Grant = ReceiveCredit::Grant;

constexpr TimePoint kNow = TimePoint() + std::chrono::hours(1);
constexpr StreamKey kFirst = {.stream = 1, .epoch = 7};
constexpr StreamKey kSecond = {.stream = 2, .epoch = 7};

void Consume(ReceiveCredit& credit, uint64_t bytes) {
  credit.Arriving(bytes);
  credit.Consume();
}

TEST(ReceiveCreditTest, CreditComesInQuartersAndAtTheEnd) {
  ReceiveCredit credit(1000);
  EXPECT_EQ(credit.TakeGrant(Grant::kWorthAFrame, kNow), 1000u)
      << "the window, before anything came";
  Consume(credit, 249);
  EXPECT_EQ(credit.TakeGrant(Grant::kWorthAFrame, kNow), std::nullopt);
  Consume(credit, 1);
  EXPECT_EQ(credit.TakeGrant(Grant::kWorthAFrame, kNow), 1250u);
  Consume(credit, 1);
  EXPECT_EQ(credit.TakeGrant(Grant::kAll, kNow), 1251u);
  EXPECT_EQ(credit.TakeGrant(Grant::kAll, kNow), std::nullopt);
  credit.Settle(250);  // a byte had come twice
  EXPECT_EQ(credit.TakeGrant(Grant::kAll, kNow), std::nullopt);
  EXPECT_EQ(credit.TakeGrant(Grant::kRepeat, kNow), 1251u) << "what was told is not taken back";
  Consume(credit, 3);
  EXPECT_EQ(credit.TakeGrant(Grant::kRepeat, kNow), 1253u);
  EXPECT_EQ(credit.TakeGrant(Grant::kRepeat, kNow), 1253u);
  EXPECT_EQ(credit.TakeGrant(Grant::kAll, kNow), std::nullopt);
}

TEST(ReceiveCreditTest, ALargeWindowIsToldOfEveryFourMebibytes) {
  constexpr uint64_t kWindow = 64 << 20;
  ReceiveCredit credit(kWindow);
  EXPECT_EQ(credit.TakeGrant(Grant::kWorthAFrame, kNow), kWindow);
  Consume(credit, (4 << 20) - 1);
  EXPECT_EQ(credit.TakeGrant(Grant::kWorthAFrame, kNow), std::nullopt);
  Consume(credit, 1);
  EXPECT_EQ(credit.TakeGrant(Grant::kWorthAFrame, kNow), kWindow + (4 << 20));
}

// Of payload that is long in coming the sender hears all the same, and of nothing that has not just
// been consumed.
TEST(ReceiveCreditTest, WhatComesSlowlyIsAnsweredByTheSecond) {
  ReceiveCredit credit(1 << 20, milliseconds(10));
  const auto after = [](int ms) { return kNow + milliseconds(ms); };
  const auto ask = [&](int ms) { return credit.TakeGrant(Grant::kWorthAFrame, after(ms)); };
  EXPECT_EQ(ask(0), 1u << 20);
  EXPECT_EQ(ask(100), std::nullopt) << "what comes has only begun";
  EXPECT_EQ(ask(109), std::nullopt);
  EXPECT_EQ(ask(110), 1u << 20) << "as it was told";
  EXPECT_EQ(ask(119), std::nullopt);
  Consume(credit, 1000);
  EXPECT_EQ(ask(119), (1u << 20) + 1000) << "at once, since nothing new was told for longer";
  Consume(credit, 1000);
  EXPECT_EQ(ask(125), std::nullopt);
  EXPECT_EQ(ask(130), (1u << 20) + 1000) << "the rest came a while ago";
  Consume(credit, 1000);
  EXPECT_EQ(ask(131), (1u << 20) + 3000);
  // Once nothing is under way, time begins anew with what comes next.
  EXPECT_EQ(credit.TakeGrant(Grant::kAll, after(132)), std::nullopt);
  EXPECT_EQ(ask(200), std::nullopt);
}

class PeerStreamsTest : public ::testing::Test {
 protected:
  void Make(uint64_t window = 1 << 20) {
    peer_ = std::make_unique<PeerStreams>(
        9, SendRate(0, Duration::zero()), links_.Find("peer"), open_.streams(),
        [this](OutgoingStream& stream, const absl::Status& status) {
          ends_.push_back(
              fmt::format("{} {}", stream.key().stream, absl::StatusCodeToString(status.code())));
          open_.streams().End(stream, status);
        });
    EXPECT_EQ(Next(), "hello");
    if (window == 0) return;
    EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = window}).ok());
  }

  void Open(StreamKey key, Duration renew_every = Duration::zero()) {
    peer_->Add(open_.Open(key), renew_every, kNow);
  }
  void Post(StreamKey key, uint32_t block, size_t bytes = 100) {
    const PostedExtent extent = {.block = block, .payload = {payload_.data(), bytes}};
    peer_->Post(open_.streams().Find(key), {&extent, 1});
  }
  void Finish(StreamKey key, uint64_t frames) { peer_->Finish(open_.streams().Find(key), frames); }
  // As the abort of a stream does.
  void Drop(StreamKey key) {
    const auto stream = open_.streams().Find(key);
    peer_->Drop(*stream);
    open_.streams().End(*stream, absl::CancelledError("aborted"));
  }

  absl::Status Reply(const FrameHeader& header) { return peer_->OnReply(header, kNow); }
  absl::Status Ack(StreamKey key, uint32_t number) {
    return Reply(
        {.type = FrameType::kAck, .stream = key.stream, .epoch = key.epoch, .block = number});
  }

  // What the connection sends next, as text.
  std::string Next() {
    const auto frame = peer_->Next(kNow);
    if (!frame) return "nothing";
    const FrameHeader& header = frame->header;
    if (header.type == FrameType::kHello) return "hello";
    if (header.type == FrameType::kRenew) return fmt::format("renew {}", header.stream);
    const bool commit = header.type == FrameType::kCommit;
    return fmt::format("{} {}:{}", commit ? "commit" : "data", header.stream, header.block);
  }

  const std::vector<std::byte> payload_ = PatternBytes(5000, 1);
  Links links_{"test"};
  LoneStreams open_;
  std::unique_ptr<PeerStreams> peer_;
  std::vector<std::string> ends_;
};

TEST_F(PeerStreamsTest, StreamsTakeTurnsAFrameEach) {
  Make();
  Open(kFirst);
  Open(kSecond);
  for (uint32_t block = 0; block < 3; ++block) Post(kFirst, block);
  for (uint32_t block = 0; block < 2; ++block) Post(kSecond, block);
  for (const char* expected : {"data 1:0", "data 2:0", "data 1:1", "data 2:1", "data 1:2"}) {
    EXPECT_EQ(Next(), expected);
  }
  EXPECT_EQ(Next(), "nothing");
}

TEST_F(PeerStreamsTest, ACommitThatNobodyAnswersIsSentAgain) {
  Make();
  Open(kFirst, milliseconds(10));
  EXPECT_EQ(Next(), "renew 1") << "before any data";
  Post(kFirst, 0);
  peer_->OnTimer(kNow + milliseconds(10));
  EXPECT_EQ(Next(), "renew 1");
  Finish(kFirst, 1);
  EXPECT_EQ(Next(), "data 1:0");
  EXPECT_EQ(Next(), "commit 1:1");
  peer_->OnTimer(kNow + milliseconds(20));  // its answer may be on the way
  EXPECT_EQ(Next(), "renew 1");
  EXPECT_EQ(Next(), "nothing");
  peer_->OnTimer(kNow + milliseconds(30));
  EXPECT_EQ(Next(), "commit 1:2");
  // A peer that takes nothing gets no heap of commits.
  for (int i = 4; i < 10; ++i) peer_->OnTimer(kNow + milliseconds(10 * i));
  EXPECT_EQ(Next(), "renew 1");
  EXPECT_EQ(Next(), "nothing");
  // Either may be answered.
  EXPECT_TRUE(Ack(kFirst, 1).ok());
  EXPECT_EQ(ends_, (std::vector<std::string>{"1 OK"}));
  EXPECT_TRUE(Ack(kFirst, 2).ok());
}

TEST_F(PeerStreamsTest, ACommitFollowsTheDataOfItsStream) {
  Make();
  Open(kFirst);
  Post(kFirst, 0);
  Post(kFirst, 1);
  Finish(kFirst, 2);
  EXPECT_EQ(Next(), "data 1:0");
  EXPECT_EQ(Next(), "data 1:1");
  EXPECT_EQ(Next(), "commit 1:1");
  EXPECT_TRUE(Ack(kFirst, 1).ok());
  EXPECT_EQ(ends_, (std::vector<std::string>{"1 OK"}));
}

TEST_F(PeerStreamsTest, NothingBeforeTheFirstCreditNorBeyondTheLatest) {
  Make(/*window=*/0);
  Open(kFirst);
  for (uint32_t block = 0; block < 4; ++block) Post(kFirst, block, 100);
  EXPECT_EQ(Next(), "nothing");
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 250}).ok());
  EXPECT_EQ(Next(), "data 1:0");
  EXPECT_EQ(Next(), "data 1:1");
  EXPECT_EQ(Next(), "nothing");
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 350}).ok());
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 300}).ok()) << "overtaken";
  EXPECT_EQ(Next(), "data 1:2");
  EXPECT_EQ(Next(), "nothing");
  EXPECT_EQ(links_.stats().front().bytes_in_flight, 200u);
}

TEST_F(PeerStreamsTest, WhatAConnectionDropsUnsentIsCreditForOthers) {
  Make(/*window=*/200);
  Open(kFirst);
  Open(kSecond);
  Post(kFirst, 0, 100);
  Post(kFirst, 1, 100);
  EXPECT_EQ(Next(), "data 1:0");
  EXPECT_EQ(Next(), "data 1:1");
  Post(kSecond, 0, 150);
  Drop(kFirst);
  EXPECT_EQ(Next(), "nothing");
  peer_->TakeBack(100);
  EXPECT_EQ(links_.stats().front().bytes_in_flight, 100u);
  EXPECT_EQ(Next(), "nothing");
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 300}).ok());
  EXPECT_EQ(Next(), "data 2:0");
}

TEST_F(PeerStreamsTest, AnswersToAnOpeningBeforeSayNothingOfThisOne) {
  Make();
  Open(kFirst);
  Finish(kFirst, 0);
  Drop(kFirst);
  Open(kFirst);
  EXPECT_TRUE(Ack(kFirst, 1).ok());
  EXPECT_TRUE(
      Reply({.type = FrameType::kReject, .code = 5, .stream = 1, .epoch = 7, .block = 1}).ok());
  Finish(kFirst, 0);
  EXPECT_TRUE(Ack(kFirst, 1).ok());
  EXPECT_TRUE(ends_.empty());
  EXPECT_TRUE(Ack(kFirst, 2).ok());
  EXPECT_EQ(ends_, (std::vector<std::string>{"1 OK"}));
  EXPECT_EQ(Ack(kFirst, 3).code(), absl::StatusCode::kInvalidArgument) << "of no commit";
}

TEST_F(PeerStreamsTest, APeerIsSilentFromTheFirstThingThatItOwesAnAnswerTo) {
  Make(/*window=*/0);
  EXPECT_EQ(peer_->answer_timer().since(), kNow) << "the first credit";
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 1000}).ok());
  EXPECT_EQ(peer_->answer_timer().silence(kNow + milliseconds(5)), Duration::zero());
  Open(kFirst, milliseconds(10));
  const auto next = [&](int ms) { peer_->Next(kNow + milliseconds(ms)); };
  next(1);  // a renewal
  EXPECT_EQ(peer_->answer_timer().since(), kNow + milliseconds(1));
  Post(kFirst, 0, 100);
  next(2);
  EXPECT_EQ(peer_->answer_timer().silence(kNow + milliseconds(5)), milliseconds(4))
      << "since the renewal";
  const auto credit = [&](uint64_t bytes, int ms) {
    EXPECT_TRUE(
        peer_->OnReply({.type = FrameType::kCredit, .frames = bytes}, kNow + milliseconds(ms))
            .ok());
  };
  credit(1000, 6);  // nothing new
  EXPECT_EQ(peer_->answer_timer().since(), kNow + milliseconds(6)) << "it owes one for the payload";
  peer_->answer_timer().Reset(kNow + milliseconds(7));
  EXPECT_EQ(peer_->answer_timer().since(), kNow + milliseconds(7));
  credit(1100, 8);
  EXPECT_EQ(peer_->answer_timer().since(), kNoDeadline);
  peer_->answer_timer().Reset(kNow + milliseconds(9));
  EXPECT_EQ(peer_->answer_timer().since(), kNoDeadline);
  Finish(kFirst, 1);
  next(10);
  EXPECT_EQ(peer_->answer_timer().since(), kNow + milliseconds(10));
  EXPECT_TRUE(Ack(kFirst, 1).ok());
  EXPECT_EQ(peer_->answer_timer().since(), kNoDeadline);
}

TEST_F(PeerStreamsTest, WhatWasNeverSentIsOwedNoAnswer) {
  Make();
  Open(kFirst);
  Post(kFirst, 0, 100);
  EXPECT_EQ(Next(), "data 1:0");
  EXPECT_EQ(peer_->answer_timer().since(), kNow);
  Drop(kFirst);
  peer_->TakeBack(100);
  EXPECT_EQ(peer_->answer_timer().since(), kNoDeadline);
}

TEST_F(PeerStreamsTest, AtMostOneRenewalWaits) {
  Make();
  Open(kFirst, milliseconds(10));
  EXPECT_EQ(peer_->wake_at(), kNow + milliseconds(10));
  for (int i = 1; i <= 5; ++i) peer_->OnTimer(kNow + i * milliseconds(10));
  EXPECT_EQ(peer_->wake_at(), kNow + milliseconds(60));
  EXPECT_EQ(Next(), "renew 1");
  EXPECT_EQ(Next(), "nothing");
  peer_->OnTimer(kNow + milliseconds(60));
  EXPECT_EQ(Next(), "renew 1");
  Drop(kFirst);
  peer_->OnTimer(kNow + milliseconds(70));
  EXPECT_EQ(peer_->wake_at(), kNoDeadline);
  EXPECT_EQ(Next(), "nothing");
}

TEST_F(PeerStreamsTest, CreditBeyondWhatWasSentDoesNotWidenTheWindow) {
  Make(/*window=*/200);
  Open(kFirst);
  for (uint32_t block = 0; block < 6; ++block) Post(kFirst, block, 100);
  EXPECT_EQ(Next(), "data 1:0");
  EXPECT_EQ(Next(), "data 1:1");
  EXPECT_EQ(Next(), "nothing");
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 1000}).ok());
  EXPECT_EQ(Next(), "data 1:2");
  EXPECT_EQ(Next(), "data 1:3");
  EXPECT_EQ(Next(), "nothing");
}

TEST_F(PeerStreamsTest, APeerThatAsksForMoreFramesThanThereAreIsLeft) {
  Make();
  Open(kFirst);
  Post(kFirst, 0);
  Finish(kFirst, 1);
  EXPECT_EQ(Next(), "data 1:0");
  EXPECT_EQ(Next(), "commit 1:1");
  EXPECT_EQ(Reply({.type = FrameType::kResend, .stream = 1, .epoch = 7, .frames = 2}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::peer_streams_test
