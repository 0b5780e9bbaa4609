#include "router/ledger/request_ledger.h"

#include <cmath>
#include <optional>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/worker_views.h"

namespace tandem::request_ledger_test {
namespace {

const WorkerId kUnit{"u0", 1};

class RequestLedgerTest : public testing::Test {
 protected:
  static RequestPart Part(RequestPart::Kind kind, int32_t prompt, double output) {
    return {
        .kind = kind, .prompt_tokens = prompt, .output_tokens = output, .most_output_tokens = 1000};
  }
  const WorkerDemand& Own() const { return ledger_.Find(kUnit)->own(); }
  // u0 reports so many sequences, with 100 tokens of context each and 10 to come.
  void Report(int32_t running, int32_t waiting) {
    clock_.Advance(std::chrono::milliseconds(500));
    ChangeLoad(view_.workers[0], [&](v1::WorkerLoad& load) {
      load.set_running(running);
      load.set_decode_context_tokens(100 * running);
      load.set_expected_decode_tokens(10 * running);
      load.set_waiting(waiting);
      load.set_waiting_prompt_tokens(50 * waiting);
    });
    view_.workers[0].last_report = clock_.Now();
    ledger_.OnReports(view_);
  }

  FakeClock clock_;
  RequestLedger ledger_{clock_};
  ClusterView view_{.workers = {MakeWorker("u0", v1::WORKER_ROLE_UNIFIED)}};
};

TEST_F(RequestLedgerTest, ARequestWaitsThenDecodesThenIsGone) {
  EXPECT_EQ(ledger_.Find(kUnit), nullptr);
  RequestLedger::Entry entry = ledger_.Add(kUnit, Part(RequestPart::Kind::kUnified, 100, 20));
  EXPECT_EQ(Own().waiting, 1);
  EXPECT_EQ(Own().waiting_prompt_tokens, 100);
  EXPECT_EQ(Own().decoding, 0);
  entry.AddTokens(1);
  EXPECT_EQ(Own().waiting, 0);
  EXPECT_EQ(Own().waiting_prompt_tokens, 0);
  EXPECT_EQ(Own().decoding, 1);
  EXPECT_EQ(Own().decode_context_tokens, 101);
  EXPECT_EQ(Own().expected_decode_tokens, 19);
  entry.AddTokens(4);
  EXPECT_EQ(Own().decode_context_tokens, 105);
  EXPECT_EQ(Own().expected_decode_tokens, 15);
  entry.Reset();
  EXPECT_EQ(Own().decoding, 0);
  EXPECT_TRUE(ledger_.Find(kUnit)->parts().empty());
}

TEST_F(RequestLedgerTest, CachedTokensNeedNotBeComputed) {
  RequestPart part = Part(RequestPart::Kind::kUnified, 100, 20);
  part.cached_tokens = 64;
  const RequestLedger::Entry entry = ledger_.Add(kUnit, part);
  EXPECT_EQ(Own().waiting_prompt_tokens, 36);
}

TEST_F(RequestLedgerTest, APromptThatIsComputedForAnotherWorkerIsNoMoreWorkHere) {
  RequestLedger::Entry entry = ledger_.Add(kUnit, Part(RequestPart::Kind::kPrefill, 100, 20));
  entry.AddTokens(1);
  EXPECT_EQ(Own().waiting + Own().decoding, 0);
  EXPECT_EQ(ledger_.Find(kUnit)->parts().front().stage, PartInFlight::Stage::kMoving);
}

TEST_F(RequestLedgerTest, SequencesThatEndLeaveTheOthers) {
  RequestPart part = Part(RequestPart::Kind::kDecode, 100, 20);
  part.sequences = 3;
  RequestLedger::Entry entry = ledger_.Add(kUnit, part);
  EXPECT_EQ(Own().decoding, 3) << "its places are taken before its KV has come";
  entry.AddTokens(6);
  EXPECT_EQ(Own().decode_context_tokens, 3 * 102);
  entry.EndSequence();
  EXPECT_EQ(Own().decoding, 2);
  EXPECT_EQ(Own().decode_context_tokens, 2 * 102);
}

TEST_F(RequestLedgerTest, ARequestThatEndsLeavesTheDemandOfTheOthers) {
  RequestLedger::Entry ended = ledger_.Add(kUnit, Part(RequestPart::Kind::kUnified, 100, 20));
  const RequestLedger::Entry left = ledger_.Add(kUnit, Part(RequestPart::Kind::kUnified, 30, 20));
  ended.Reset();
  EXPECT_EQ(Own().waiting, 1);
  EXPECT_EQ(Own().waiting_prompt_tokens, 30);
}

TEST_F(RequestLedgerTest, AnOutputThatIsLongerThanExpectedGoesOnForAWhileButNotBeyondItsLimit) {
  RequestPart part = Part(RequestPart::Kind::kUnified, 100, 80);
  part.most_output_tokens = 95;
  RequestLedger::Entry entry = ledger_.Add(kUnit, part);
  entry.AddTokens(80);
  EXPECT_EQ(Own().expected_decode_tokens, 10);
  entry.AddTokens(12);
  EXPECT_EQ(Own().expected_decode_tokens, 3);
  entry.AddTokens(3);
  EXPECT_EQ(Own().expected_decode_tokens, 1);
}

TEST_F(RequestLedgerTest, WhatTwoReportsHaveBeyondOwnRequestsBelongsToOthers) {
  const RequestLedger::Entry entry = ledger_.Add(kUnit, Part(RequestPart::Kind::kUnified, 100, 20));
  Report(/*running=*/3, /*waiting=*/2);
  EXPECT_EQ(ledger_.Find(kUnit)->others().decoding, 0) << "it may be a request that just ended";
  Report(/*running=*/4, /*waiting=*/2);
  const WorkerDemand others = ledger_.Find(kUnit)->others();
  EXPECT_EQ(others.decoding, 3);
  EXPECT_EQ(others.decode_context_tokens, 300);
  EXPECT_EQ(others.expected_decode_tokens, 30);
  EXPECT_EQ(others.waiting, 1);
  EXPECT_EQ(others.waiting_prompt_tokens, 0);
  Report(/*running=*/0, /*waiting=*/0);
  EXPECT_EQ(ledger_.Find(kUnit)->others().decoding, 0);
}

TEST_F(RequestLedgerTest, TheSameReportCountsOnce) {
  Report(/*running=*/3, /*waiting=*/0);
  ledger_.OnReports(view_);
  EXPECT_EQ(ledger_.Find(kUnit)->others().decoding, 0);
}

TEST_F(RequestLedgerTest, AReportOfTheSameMomentAsTheLatestOneCounts) {
  view_.workers.push_back(MakeWorker("u1", v1::WORKER_ROLE_UNIFIED));
  for (int i = 0; i < 2; ++i) {
    Report(/*running=*/1, /*waiting=*/0);  // of u0
    ChangeLoad(view_.workers[1], [](v1::WorkerLoad& load) { load.set_running(5); });
    view_.workers[1].last_report = clock_.Now();
    ledger_.OnReports(view_);
  }
  EXPECT_EQ(ledger_.Find(view_.workers[1].id)->others().decoding, 5);
}

TEST_F(RequestLedgerTest, AWorkerThatHasGoneIsForgottenWithItsLastRequest) {
  std::optional<RequestLedger::Entry> entry =
      ledger_.Add(kUnit, Part(RequestPart::Kind::kUnified, 100, 20));
  ledger_.OnReports({});
  EXPECT_NE(ledger_.Find(kUnit), nullptr);
  entry.reset();
  ledger_.OnReports({});
  EXPECT_EQ(ledger_.Find(kUnit), nullptr);
}

TEST_F(RequestLedgerTest, RequestsCountAsArrivalsWhenTheyAreSent) {
  const auto arrivals = [this] { return ledger_.Find(kUnit)->arrivals().At(clock_.Now()); };
  std::vector<RequestLedger::Entry> entries;
  for (int i = 0; i < 2000; ++i) {
    clock_.Advance(std::chrono::milliseconds(10));
    entries.push_back(ledger_.Add(kUnit, Part(RequestPart::Kind::kUnified, 50, 20)));
    if (i == 300) {
      EXPECT_NEAR(arrivals().sequences_per_second, 100, 5) << "soon after the first";
    }
  }
  EXPECT_NEAR(arrivals().sequences_per_second, 100, 3);
  EXPECT_NEAR(arrivals().new_tokens_per_second, 5000, 150);
  EXPECT_NEAR(arrivals().new_pairs_per_second, 100 * 50 * 51 / 2.0, 4000);
  EXPECT_NEAR(arrivals().context_tokens, 50, 1e-6);
  EXPECT_NEAR(arrivals().output_tokens, 20, 1e-6);
  EXPECT_NEAR(arrivals().lasting_seconds, 13.7, 0.5) << "20 s, of which early ones count less";
  clock_.Advance(std::chrono::seconds(10));
  EXPECT_NEAR(arrivals().sequences_per_second, 100 / std::exp(1), 6);
}

TEST_F(RequestLedgerTest, ALongOutputIsFoundDecodingMoreOftenThanAShortOne) {
  const auto output = ledger_.Add(kUnit, Part(RequestPart::Kind::kUnified, 100, 900));
  const auto prompt = ledger_.Add(kUnit, Part(RequestPart::Kind::kUnified, 2000, 100));
  const ArrivalRates arrivals = ledger_.Find(kUnit)->arrivals().At(clock_.Now());
  EXPECT_NEAR(arrivals.prompt_tokens, 1050, 1e-6);
  EXPECT_NEAR(arrivals.context_tokens, (100 * 900 + 2000 * 100) / 1000.0, 1e-6);
  EXPECT_NEAR(arrivals.output_tokens, 500, 1e-6);
}

TEST_F(RequestLedgerTest, OfARequestThatComesWithItsKvNothingIsComputed) {
  RequestPart part = Part(RequestPart::Kind::kDecode, 50, 20);
  part.sequences = 3;
  const RequestLedger::Entry entry = ledger_.Add(kUnit, part);
  const ArrivalRates arrivals = ledger_.Find(kUnit)->arrivals().At(clock_.Now());
  EXPECT_GT(arrivals.sequences_per_second, 0);
  EXPECT_NEAR(arrivals.context_tokens, 50, 1e-6);
  EXPECT_EQ(arrivals.new_tokens_per_second, 0);
}

}  // namespace
}  // namespace tandem::request_ledger_test
