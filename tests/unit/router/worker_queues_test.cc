#include "router/ledger/worker_queues.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/ledger/request_ledger.h"
#include "tests/support/fake_clock.h"
#include "tests/support/measured_workers.h"

namespace tandem::worker_queues_test {
namespace {

using ::testing::SizeIs;

class WorkerQueuesTest : public testing::Test {
 protected:
  WorkerState State(double messages_ms = 0) {
    return QueuesOf(worker_, ledger_.Find(worker_.id),
                    {.now = clock_.Now(), .output_tokens = 7, .messages_ms = messages_ms});
  }
  RequestLedger::Entry Add(RequestPart::Kind kind, int32_t prompt, double output) {
    return ledger_.Add(worker_.id, {.kind = kind,
                                    .prompt_tokens = prompt,
                                    .output_tokens = output,
                                    .most_output_tokens = 10000});
  }
  // The worker reports nothing but its limits.
  void Report() {
    clock_.Advance(std::chrono::milliseconds(1));
    worker_.last_report = clock_.Now();
    ledger_.OnReports({.workers = {worker_}});
  }

  FakeClock clock_;
  RequestLedger ledger_{clock_};
  WorkerView worker_ = MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED);
};

TEST_F(WorkerQueuesTest, AWorkerWithoutRequestsIsIdleAndHasItsLimits) {
  const WorkerState state = State();
  EXPECT_THAT(state.decoding, SizeIs(0));
  EXPECT_THAT(state.waiting, SizeIs(0));
  EXPECT_FALSE(state.elapsed_ms.has_value());
  EXPECT_EQ(state.max_step_tokens, 256);
  EXPECT_EQ(state.max_sequences, 32);
  EXPECT_EQ(state.available_kv_tokens, 1000 * 16);
  EXPECT_EQ(state.prefill_ends, PrefillEnds::kInDecode);
}

TEST_F(WorkerQueuesTest, RequestsOfThisRouterAreExact) {
  RequestLedger::Entry decoding = Add(RequestPart::Kind::kUnified, 100, 50);
  decoding.AddTokens(10);
  const RequestLedger::Entry first = Add(RequestPart::Kind::kUnified, 200, 20);
  const RequestLedger::Entry second = Add(RequestPart::Kind::kUnified, 300, 30);
  clock_.Advance(std::chrono::milliseconds(4));
  const WorkerState state = State();
  ASSERT_THAT(state.decoding, SizeIs(1));
  EXPECT_EQ(state.decoding[0].count, 1);
  EXPECT_EQ(state.decoding[0].context_tokens, 110);
  EXPECT_EQ(state.decoding[0].remaining_tokens, 40);
  ASSERT_THAT(state.waiting, SizeIs(2));
  EXPECT_EQ(state.waiting[0].new_tokens, 200);
  EXPECT_EQ(state.waiting[1].new_tokens, 300);
  EXPECT_EQ(state.waiting[1].output_tokens, 30);
  EXPECT_EQ(state.elapsed_ms, 4) << "since the latest token came";
  EXPECT_EQ(state.available_kv_tokens, 1000 * 16 - 110);
}

// Tokens that arrive now were sampled some time ago, and the request will be there later.
TEST_F(WorkerQueuesTest, AStepRunsForLongerThanItsBeginningIsKnownHere) {
  RequestLedger::Entry decoding = Add(RequestPart::Kind::kUnified, 100, 50);
  clock_.Advance(std::chrono::milliseconds(3));
  EXPECT_EQ(State(2).elapsed_ms, 3) << "that request was as long on its way";
  EXPECT_EQ(State(2).messages_ms, 2);
  decoding.AddTokens(1);
  clock_.Advance(std::chrono::milliseconds(4));
  EXPECT_EQ(State(2).elapsed_ms, 6);
  EXPECT_EQ(State().elapsed_ms, 4) << "nothing is known of messages";
}

// Of 256 tokens each, of which one is the other request's.
TEST_F(WorkerQueuesTest, StepsThatSampleTokensOfOthersHaveComputedAPartOfThePrompt) {
  Report();
  RequestLedger::Entry decoding = Add(RequestPart::Kind::kUnified, 100, 50);
  decoding.AddTokens(1);
  clock_.Advance(std::chrono::milliseconds(1));
  const RequestLedger::Entry prompt = Add(RequestPart::Kind::kUnified, 600, 20);
  const auto uncomputed_after_step = [&] {
    clock_.Advance(std::chrono::milliseconds(1));
    decoding.AddTokens(1);
    const WorkerState state = State();
    EXPECT_THAT(state.waiting, SizeIs(1));
    EXPECT_EQ(state.waiting[0].new_tokens + state.waiting[0].cached_tokens, 600);
    return state.waiting[0].new_tokens;
  };
  EXPECT_EQ(uncomputed_after_step(), 600) << "that step had begun before the prompt came";
  EXPECT_EQ(uncomputed_after_step(), 600 - 255);
  EXPECT_EQ(uncomputed_after_step(), 600 - 2 * 255);
  EXPECT_EQ(uncomputed_after_step(), 1) << "its first token has not come yet";
}

TEST_F(WorkerQueuesTest, WhatAPromptLeavesOfItsLastStepIsTheNextOnes) {
  Report();
  for (const bool prompt_is_first : {true, false}) {
    SCOPED_TRACE(prompt_is_first);
    RequestLedger::Entry decoding = Add(RequestPart::Kind::kUnified, 100, 50);
    decoding.AddTokens(1);
    RequestLedger::Entry prompt = Add(RequestPart::Kind::kUnified, 100, 20);
    const RequestLedger::Entry next = Add(RequestPart::Kind::kUnified, 600, 20);
    clock_.Advance(std::chrono::milliseconds(1));
    // The tokens of one step arrive in any order.
    if (prompt_is_first) prompt.AddTokens(1);
    decoding.AddTokens(1);
    if (!prompt_is_first) prompt.AddTokens(1);
    const WorkerState state = State();
    ASSERT_THAT(state.waiting, SizeIs(1));
    EXPECT_NEAR(state.waiting[0].new_tokens, 600 - (255 - 100), 1) << "the prompt decodes now";
    clock_.Advance(std::chrono::milliseconds(1));
  }
}

TEST_F(WorkerQueuesTest, WhereNothingDecodesNothingIsKnownOfPromptsThatWait) {
  Report();
  RequestLedger::Entry first = Add(RequestPart::Kind::kPrefill, 100, 1);
  RequestLedger::Entry second = Add(RequestPart::Kind::kPrefill, 600, 1);
  for (RequestLedger::Entry* const entry : {&first, &second}) entry->Send();
  first.AddTokens(1);
  EXPECT_EQ(State().waiting.at(0).new_tokens, 600);
}

// A prompt whose first token does not come has no place, say, or less of it was cached.
TEST_F(WorkerQueuesTest, NothingIsKnownOfPromptsBehindOneThatShouldBeComputed) {
  Report();
  RequestLedger::Entry decoding = Add(RequestPart::Kind::kUnified, 100, 50);
  decoding.AddTokens(1);
  RequestLedger::Entry prompt = Add(RequestPart::Kind::kUnified, 200, 20);
  const RequestLedger::Entry next = Add(RequestPart::Kind::kUnified, 600, 20);
  for (int step = 0; step < 3; ++step) {
    decoding.AddTokens(1);
    EXPECT_EQ(State().waiting.at(0).new_tokens, 1);
    EXPECT_EQ(State().waiting.at(1).new_tokens, 600 - 55);
  }
  prompt.AddTokens(1);
  decoding.AddTokens(1);
  EXPECT_EQ(State().waiting.at(0).new_tokens, 600 - 55 - 254);
}

TEST_F(WorkerQueuesTest, EachChoiceHasATokenInAStep) {
  Report();
  RequestLedger::Entry decoding = ledger_.Add(worker_.id, {.kind = RequestPart::Kind::kUnified,
                                                           .sequences = 4,
                                                           .prompt_tokens = 100,
                                                           .output_tokens = 50,
                                                           .most_output_tokens = 10000});
  for (int choice = 0; choice < 4; ++choice) decoding.AddTokens(1);
  const RequestLedger::Entry prompt = Add(RequestPart::Kind::kUnified, 600, 20);
  clock_.Advance(std::chrono::milliseconds(1));
  for (int choice = 0; choice < 4; ++choice) {
    decoding.AddTokens(1);
    EXPECT_EQ(State().waiting.at(0).new_tokens, 600 - 252);
  }
  decoding.AddTokens(1);
  EXPECT_EQ(State().waiting.at(0).new_tokens, 600 - 2 * 252);
}

TEST_F(WorkerQueuesTest, HoweverManyRequestsThereAreTheirGroupsAreFewAndKeepTheTotals) {
  std::vector<RequestLedger::Entry> entries;
  int64_t prompts = 0;
  int64_t contexts = 0;
  for (int i = 1; i <= 400; ++i) {
    entries.push_back(Add(RequestPart::Kind::kUnified, 100 * i, 10 * i));
    if (i % 2 == 0) {
      entries.back().AddTokens(1);
      contexts += 100 * i + 1;
    } else {
      prompts += 100 * i;
    }
  }
  const WorkerState state = State();
  EXPECT_LE(state.decoding.size(), size_t{kMostGroups});
  EXPECT_LE(state.waiting.size(), size_t{kMostGroups});
  int count = 0;
  double of_groups = 0;
  for (const DecodeGroup& group : state.decoding) {
    count += group.count;
    of_groups += group.count * group.context_tokens;
  }
  EXPECT_EQ(count, 200);
  EXPECT_NEAR(of_groups, static_cast<double>(contexts), 1);
  of_groups = 0;
  for (const WaitingGroup& group : state.waiting) of_groups += group.count * group.new_tokens;
  EXPECT_NEAR(of_groups / static_cast<double>(prompts), 1, 0.001);
  EXPECT_LT(state.waiting.front().new_tokens, state.waiting.back().new_tokens) << "in order";
}

TEST_F(WorkerQueuesTest, KvThatIsOnItsWayNeedsNoPrefill) {
  worker_.role = v1::WORKER_ROLE_DECODE;
  const RequestLedger::Entry reserved = Add(RequestPart::Kind::kDecode, 100, 50);
  const WorkerState state = State();
  ASSERT_THAT(state.waiting, SizeIs(1));
  EXPECT_EQ(state.waiting[0].new_tokens, 0);
  EXPECT_EQ(state.waiting[0].cached_tokens, 100);
}

TEST_F(WorkerQueuesTest, TheCachedPartOfAWaitingPromptIsNotComputedAgain) {
  const RequestLedger::Entry waiting = ledger_.Add(worker_.id, {.kind = RequestPart::Kind::kUnified,
                                                                .prompt_tokens = 100,
                                                                .cached_tokens = 64,
                                                                .output_tokens = 50,
                                                                .most_output_tokens = 10000});
  const WorkerState state = State();
  ASSERT_THAT(state.waiting, SizeIs(1));
  EXPECT_EQ(state.waiting[0].new_tokens, 36);
  EXPECT_EQ(state.waiting[0].cached_tokens, 64);
}

TEST_F(WorkerQueuesTest, APromptIsNotBegunWhileItAwaitsRoomElsewhere) {
  worker_.role = v1::WORKER_ROLE_PREFILL;
  RequestLedger::Entry entry = Add(RequestPart::Kind::kPrefill, 100, 50);
  clock_.Advance(std::chrono::milliseconds(9));
  EXPECT_THAT(State().waiting, SizeIs(1)) << "it will come";
  EXPECT_FALSE(State().elapsed_ms.has_value());
  entry.Send();
  clock_.Advance(std::chrono::milliseconds(2));
  EXPECT_EQ(State().elapsed_ms, 2);
  EXPECT_EQ(State().prefill_ends, PrefillEnds::kInHandOff);
  entry.AddTokens(1);
  EXPECT_THAT(State().waiting, SizeIs(0));
}

TEST_F(WorkerQueuesTest, WhatOtherRoutersHaveThereIsOneGroupOfEachKind) {
  ChangeLoad(worker_, [](v1::WorkerLoad& load) {
    load.set_running(4);
    load.set_decode_context_tokens(400);
    load.set_expected_decode_tokens(80);
    load.set_waiting(2);
    load.set_waiting_prompt_tokens(600);
  });
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(std::chrono::milliseconds(500));
    worker_.last_report = clock_.Now();
    ledger_.OnReports({.workers = {worker_}});
  }
  const WorkerState state = State();
  ASSERT_THAT(state.decoding, SizeIs(1));
  EXPECT_EQ(state.decoding[0].count, 4);
  EXPECT_EQ(state.decoding[0].context_tokens, 100);
  EXPECT_EQ(state.decoding[0].remaining_tokens, 20);
  ASSERT_THAT(state.waiting, SizeIs(1));
  EXPECT_EQ(state.waiting[0].count, 2);
  EXPECT_EQ(state.waiting[0].new_tokens, 300);
  EXPECT_EQ(state.waiting[0].output_tokens, 7);
}

}  // namespace
}  // namespace tandem::worker_queues_test
