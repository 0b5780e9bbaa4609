// The two ends of a group of connections, without connections: what may be sent next, and when a
// commit or a credit is due.
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "tests/support/transport_probe.h"
#include "transfer/framed/inbound_group.h"
#include "transfer/framed/outbound_group.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using Grant = InboundGroup::Grant;

constexpr TimePoint kNow = TimePoint() + std::chrono::hours(1);
constexpr StreamKey kFirst = {.stream = 1, .epoch = 7};
constexpr StreamKey kSecond = {.stream = 2, .epoch = 7};

FrameHeader Hello(uint32_t index, uint32_t connections) {
  return {.type = FrameType::kHello, .stream = 9, .layer = index, .block = connections};
}

FrameHeader Commit(StreamKey key, uint32_t number) {
  return {.type = FrameType::kCommit, .stream = key.stream, .epoch = key.epoch, .block = number};
}

TEST(InboundGroupTest, EachConnectionJoinsOnce) {
  InboundGroup group(2, 100);
  EXPECT_TRUE(group.Join(Hello(1, 2), 11).ok());
  EXPECT_EQ(group.Join(Hello(1, 2), 12).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group.Join(Hello(0, 3), 13).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(group.Join(Hello(0, 2), 14).ok());
  EXPECT_EQ(group.members(), (std::vector<uint64_t>{11, 14}));
}

TEST(InboundGroupTest, ACommitCountsWhenItCameOnEveryConnection) {
  InboundGroup group(3, 100);
  EXPECT_FALSE(*group.CommitCame(Commit(kFirst, 1), 0));
  EXPECT_FALSE(*group.CommitCame(Commit(kFirst, 1), 0));
  EXPECT_FALSE(*group.CommitCame(Commit(kSecond, 2), 1));
  EXPECT_FALSE(*group.CommitCame(Commit(kFirst, 1), 2));
  EXPECT_TRUE(*group.CommitCame(Commit(kFirst, 1), 1));
  // The stream was opened again; what is left of the commit before does not count for this one.
  EXPECT_FALSE(*group.CommitCame(Commit(kSecond, 3), 0));
  EXPECT_FALSE(*group.CommitCame(Commit(kSecond, 3), 2));
  EXPECT_TRUE(*group.CommitCame(Commit(kSecond, 3), 1));
}

TEST(InboundGroupTest, CommitsThatWaitAreBounded) {
  InboundGroup group(2, 100);
  absl::Status status;
  for (uint64_t stream = 1; status.ok() && stream < 100'000; ++stream) {
    status = group.CommitCame(Commit({.stream = stream, .epoch = 7}, 1), 0).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(InboundGroupTest, CreditComesInQuartersAndAtTheEnd) {
  InboundGroup group(1, 1000);
  EXPECT_EQ(group.TakeGrant(Grant::kWorthAFrame, kNow), 1000u)
      << "the window, before anything came";
  group.Consumed(249);
  EXPECT_EQ(group.TakeGrant(Grant::kWorthAFrame, kNow), std::nullopt);
  group.Consumed(1);
  EXPECT_EQ(group.TakeGrant(Grant::kWorthAFrame, kNow), 1250u);
  group.Consumed(1);
  EXPECT_EQ(group.TakeGrant(Grant::kAll, kNow), 1251u);
  EXPECT_EQ(group.TakeGrant(Grant::kAll, kNow), std::nullopt);
  group.Consumed(-1);  // it had come twice
  EXPECT_EQ(group.TakeGrant(Grant::kAll, kNow), std::nullopt);
  EXPECT_EQ(group.TakeGrant(Grant::kRepeat, kNow), 1251u) << "what was told is not taken back";
  group.Consumed(3);
  EXPECT_EQ(group.TakeGrant(Grant::kRepeat, kNow), 1253u);
  EXPECT_EQ(group.TakeGrant(Grant::kRepeat, kNow), 1253u);
  EXPECT_EQ(group.TakeGrant(Grant::kAll, kNow), std::nullopt);
}

TEST(InboundGroupTest, ALargeWindowIsToldOfEveryFourMebibytes) {
  constexpr uint64_t kWindow = 64 << 20;
  InboundGroup group(1, kWindow);
  EXPECT_EQ(group.TakeGrant(Grant::kWorthAFrame, kNow), kWindow);
  group.Consumed((4 << 20) - 1);
  EXPECT_EQ(group.TakeGrant(Grant::kWorthAFrame, kNow), std::nullopt);
  group.Consumed(1);
  EXPECT_EQ(group.TakeGrant(Grant::kWorthAFrame, kNow), kWindow + (4 << 20));
}

// Of payload that is long in coming the sender hears all the same, and of nothing that has not just
// been consumed.
TEST(InboundGroupTest, WhatComesSlowlyIsAnsweredByTheSecond) {
  InboundGroup group(1, 1 << 20, milliseconds(10));
  const auto after = [](int ms) { return kNow + milliseconds(ms); };
  const auto ask = [&](int ms) { return group.TakeGrant(Grant::kWorthAFrame, after(ms)); };
  EXPECT_EQ(ask(0), 1u << 20);
  EXPECT_EQ(ask(100), std::nullopt) << "what comes has only begun";
  EXPECT_EQ(ask(109), std::nullopt);
  EXPECT_EQ(ask(110), 1u << 20) << "as it was told";
  EXPECT_EQ(ask(119), std::nullopt);
  group.Consumed(1000);
  EXPECT_EQ(ask(119), (1u << 20) + 1000) << "at once, since nothing new was told for longer";
  group.Consumed(1000);
  EXPECT_EQ(ask(125), std::nullopt);
  EXPECT_EQ(ask(130), (1u << 20) + 1000) << "the rest came a while ago";
  group.Consumed(1000);
  EXPECT_EQ(ask(131), (1u << 20) + 3000);
  // Once nothing is under way, time begins anew with what comes next.
  EXPECT_EQ(group.TakeGrant(Grant::kAll, after(132)), std::nullopt);
  EXPECT_EQ(ask(200), std::nullopt);
}

class OutboundGroupTest : public ::testing::Test {
 protected:
  void Make(uint32_t connections, uint64_t window = 1 << 20) {
    group_ = std::make_unique<OutboundGroup>(
        OutboundGroup::Options{.peer = "peer", .id = 9, .connections = connections},
        links_.Find("peer"), [this](StreamKey key, uint64_t serial, const absl::Status& status) {
          ends_.push_back(
              fmt::format("{}/{} {}", key.stream, serial, absl::StatusCodeToString(status.code())));
        });
    for (uint32_t i = 0; i < connections; ++i) EXPECT_EQ(Next(i), "hello");
    if (window == 0) return;
    EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = window}).ok());
  }

  void Post(StreamKey key, uint32_t block, size_t bytes = 100) {
    const PostedExtent extent = {.block = block, .payload = {payload_.data(), bytes}};
    group_->Post(key, {&extent, 1});
  }

  absl::Status Reply(const FrameHeader& header) { return group_->OnReply(header, kNow); }
  absl::Status Ack(StreamKey key, uint32_t number) {
    return Reply(
        {.type = FrameType::kAck, .stream = key.stream, .epoch = key.epoch, .block = number});
  }

  // What connection `index` sends next, as text.
  std::string Next(uint32_t index) {
    const auto frame = group_->Next(index, kNow);
    if (!frame) return "nothing";
    const FrameHeader& header = frame->header;
    if (header.type == FrameType::kHello) return "hello";
    if (header.type == FrameType::kRenew) return fmt::format("renew {}", header.stream);
    const bool commit = header.type == FrameType::kCommit;
    return fmt::format("{} {}:{}", commit ? "commit" : "data", header.stream, header.block);
  }

  const std::vector<std::byte> payload_ = PatternBytes(5000, 1);
  Links links_{"test"};
  std::unique_ptr<OutboundGroup> group_;
  std::vector<std::string> ends_;
};

TEST_F(OutboundGroupTest, StreamsTakeTurnsAFrameEach) {
  Make(1);
  group_->AddStream(kFirst, 1, Duration::zero(), kNow);
  group_->AddStream(kSecond, 2, Duration::zero(), kNow);
  for (uint32_t block = 0; block < 3; ++block) Post(kFirst, block);
  for (uint32_t block = 0; block < 2; ++block) Post(kSecond, block);
  for (const char* expected : {"data 1:0", "data 2:0", "data 1:1", "data 2:1", "data 1:2"}) {
    EXPECT_EQ(Next(0), expected);
  }
  EXPECT_EQ(Next(0), "nothing");
}

TEST_F(OutboundGroupTest, ACommitThatNobodyAnswersIsSentAgain) {
  Make(1);
  group_->AddStream(kFirst, 1, milliseconds(10), kNow);
  EXPECT_EQ(Next(0), "renew 1") << "before any data";
  Post(kFirst, 0);
  group_->OnTimer(kNow + milliseconds(10));
  EXPECT_EQ(Next(0), "renew 1");
  group_->Finish(kFirst, 1);
  EXPECT_EQ(Next(0), "data 1:0");
  EXPECT_EQ(Next(0), "commit 1:1");
  group_->OnTimer(kNow + milliseconds(20));  // its answer may be on the way
  EXPECT_EQ(Next(0), "renew 1");
  EXPECT_EQ(Next(0), "nothing");
  group_->OnTimer(kNow + milliseconds(30));
  EXPECT_EQ(Next(0), "commit 1:2");
  // A peer that takes nothing gets no heap of commits.
  for (int i = 4; i < 10; ++i) group_->OnTimer(kNow + milliseconds(10 * i));
  EXPECT_EQ(Next(0), "renew 1");
  EXPECT_EQ(Next(0), "nothing");
  // Either may be answered.
  EXPECT_TRUE(Ack(kFirst, 1).ok());
  EXPECT_EQ(ends_, (std::vector<std::string>{"1/1 OK"}));
  EXPECT_TRUE(Ack(kFirst, 2).ok());
}

TEST_F(OutboundGroupTest, ACommitFollowsTheDataOnEveryConnection) {
  Make(2);
  group_->AddStream(kFirst, 1, Duration::zero(), kNow);
  Post(kFirst, 0);
  Post(kFirst, 1);
  group_->Finish(kFirst, 2);
  EXPECT_EQ(Next(1), "data 1:0");
  EXPECT_EQ(Next(0), "data 1:1");
  EXPECT_EQ(Next(0), "commit 1:1");
  EXPECT_EQ(Next(1), "commit 1:1");
  EXPECT_TRUE(Ack(kFirst, 1).ok());
  EXPECT_EQ(ends_, (std::vector<std::string>{"1/1 OK"}));
}

TEST_F(OutboundGroupTest, NothingBeforeTheFirstCreditNorBeyondTheLatest) {
  Make(1, /*window=*/0);
  group_->AddStream(kFirst, 1, Duration::zero(), kNow);
  for (uint32_t block = 0; block < 4; ++block) Post(kFirst, block, 100);
  EXPECT_EQ(Next(0), "nothing");
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 250}).ok());
  EXPECT_EQ(Next(0), "data 1:0");
  EXPECT_EQ(Next(0), "data 1:1");
  EXPECT_EQ(Next(0), "nothing");
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 350}).ok());
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 300}).ok()) << "overtaken";
  EXPECT_EQ(Next(0), "data 1:2");
  EXPECT_EQ(Next(0), "nothing");
  EXPECT_EQ(links_.stats().front().bytes_in_flight, 200u);
}

TEST_F(OutboundGroupTest, WhatAConnectionDropsUnsentIsCreditForOthers) {
  Make(1, /*window=*/200);
  group_->AddStream(kFirst, 1, Duration::zero(), kNow);
  group_->AddStream(kSecond, 2, Duration::zero(), kNow);
  Post(kFirst, 0, 100);
  Post(kFirst, 1, 100);
  EXPECT_EQ(Next(0), "data 1:0");
  EXPECT_EQ(Next(0), "data 1:1");
  Post(kSecond, 0, 150);
  group_->Drop(kFirst);
  EXPECT_EQ(Next(0), "nothing");
  group_->TakeBack(100);
  EXPECT_EQ(links_.stats().front().bytes_in_flight, 100u);
  EXPECT_EQ(Next(0), "nothing");
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 300}).ok());
  EXPECT_EQ(Next(0), "data 2:0");
}

TEST_F(OutboundGroupTest, AnswersToAnOpeningBeforeSayNothingOfThisOne) {
  Make(1);
  group_->AddStream(kFirst, 1, Duration::zero(), kNow);
  group_->Finish(kFirst, 0);
  group_->Drop(kFirst);
  group_->AddStream(kFirst, 2, Duration::zero(), kNow);
  EXPECT_TRUE(Ack(kFirst, 1).ok());
  EXPECT_TRUE(
      Reply({.type = FrameType::kReject, .code = 5, .stream = 1, .epoch = 7, .block = 1}).ok());
  group_->Finish(kFirst, 0);
  EXPECT_TRUE(Ack(kFirst, 1).ok());
  EXPECT_TRUE(ends_.empty());
  EXPECT_TRUE(Ack(kFirst, 2).ok());
  EXPECT_EQ(ends_, (std::vector<std::string>{"1/2 OK"}));
  EXPECT_EQ(Ack(kFirst, 3).code(), absl::StatusCode::kInvalidArgument) << "of no commit";
}

TEST_F(OutboundGroupTest, APeerIsSilentFromTheFirstThingThatItOwesAnAnswerTo) {
  Make(2, /*window=*/0);
  EXPECT_EQ(group_->silent_since(), kNow) << "the first credit";
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 1000}).ok());
  EXPECT_EQ(group_->silence(kNow + milliseconds(5)), Duration::zero());
  group_->AddStream(kFirst, 1, milliseconds(10), kNow);
  const auto next = [&](int ms) { group_->Next(0, kNow + milliseconds(ms)); };
  next(1);  // a renewal
  EXPECT_EQ(group_->silent_since(), kNow + milliseconds(1));
  Post(kFirst, 0, 100);
  next(2);
  EXPECT_EQ(group_->silence(kNow + milliseconds(5)), milliseconds(4)) << "since the renewal";
  const auto credit = [&](uint64_t bytes, int ms) {
    EXPECT_TRUE(
        group_->OnReply({.type = FrameType::kCredit, .frames = bytes}, kNow + milliseconds(ms))
            .ok());
  };
  credit(1000, 6);  // nothing new
  EXPECT_EQ(group_->silent_since(), kNow + milliseconds(6)) << "it owes one for the payload";
  group_->Excuse(kNow + milliseconds(7));
  EXPECT_EQ(group_->silent_since(), kNow + milliseconds(7));
  credit(1100, 8);
  EXPECT_EQ(group_->silent_since(), kNoDeadline);
  group_->Excuse(kNow + milliseconds(9));
  EXPECT_EQ(group_->silent_since(), kNoDeadline);
  group_->Finish(kFirst, 1);
  next(10);
  EXPECT_EQ(group_->silent_since(), kNow + milliseconds(10));
  EXPECT_TRUE(Ack(kFirst, 1).ok());
  EXPECT_EQ(group_->silent_since(), kNoDeadline);
}

TEST_F(OutboundGroupTest, WhatWasNeverSentIsOwedNoAnswer) {
  Make(1);
  group_->AddStream(kFirst, 1, Duration::zero(), kNow);
  Post(kFirst, 0, 100);
  EXPECT_EQ(Next(0), "data 1:0");
  EXPECT_EQ(group_->silent_since(), kNow);
  group_->Drop(kFirst);
  group_->TakeBack(100);
  EXPECT_EQ(group_->silent_since(), kNoDeadline);
}

TEST_F(OutboundGroupTest, OfSeveralHellosOneIsAnswered) {
  group_ = std::make_unique<OutboundGroup>(
      OutboundGroup::Options{.peer = "peer", .id = 9, .connections = 2}, links_.Find("peer"),
      [](StreamKey, uint64_t, const absl::Status&) {});
  EXPECT_EQ(Next(0), "hello");
  EXPECT_TRUE(Reply({.type = FrameType::kCredit, .frames = 1000}).ok());
  EXPECT_EQ(Next(1), "hello");
  EXPECT_EQ(group_->silent_since(), kNoDeadline);
}

TEST_F(OutboundGroupTest, AtMostOneRenewalWaits) {
  Make(1);
  group_->AddStream(kFirst, 1, milliseconds(10), kNow);
  EXPECT_EQ(group_->wake_at(), kNow + milliseconds(10));
  for (int i = 1; i <= 5; ++i) group_->OnTimer(kNow + i * milliseconds(10));
  EXPECT_EQ(group_->wake_at(), kNow + milliseconds(60));
  EXPECT_EQ(Next(0), "renew 1");
  EXPECT_EQ(Next(0), "nothing");
  group_->OnTimer(kNow + milliseconds(60));
  EXPECT_EQ(Next(0), "renew 1");
  group_->Drop(kFirst);
  group_->OnTimer(kNow + milliseconds(70));
  EXPECT_EQ(group_->wake_at(), kNoDeadline);
  EXPECT_EQ(Next(0), "nothing");
}

}  // namespace
}  // namespace tandem
