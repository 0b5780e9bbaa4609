// Requests of which the best choices alone are sent, ranked by their log-probability (best_of).

#include <cstdint>

#include "tests/unit/router/choices_fixture.h"

namespace tandem::best_of_test {
namespace {

using choices::ChoicesTest;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(ChoicesTest, BestOfRanksByTotalLogProbability) {
  v1::GenerateRequest request = AskFor(2, v1::ROUTE_UNIFIED);
  request.set_best_of(4);
  Submit(request);
  EXPECT_EQ(workers_.streams[0]->sequence.n(), 4);
  EXPECT_EQ(workers_.streams[0]->sequence.sampling().logprobs(), 0) << "ranking needs them";
  EXPECT_EQ(router_.Status().requests_in_flight(), 4);
  const float logprobs[] = {-3, -1, -4, -2};
  for (const int32_t index : {0, 1, 2, 3}) {
    Say("generate u0", {10 * index}, index, logprobs[index]);
    Say("generate u0", {10 * index + 1}, index, -0.5f);
    EndChoice("generate u0", index, kLength);
  }
  EXPECT_THAT(stream_.tokens, IsEmpty()) << "the ranking is not known yet";
  EXPECT_THAT(stream_.finishes, IsEmpty());
  Close("generate u0", kLength);
  ExpectOk();
  ASSERT_EQ(stream_.finishes.size(), 2u);
  EXPECT_THAT(stream_.ids[0], ElementsAre(10, 11));
  EXPECT_THAT(stream_.ids[1], ElementsAre(30, 31));
  EXPECT_DOUBLE_EQ(stream_.FinishOf(0).cumulative_logprob(), -1.5);
  EXPECT_DOUBLE_EQ(stream_.FinishOf(1).cumulative_logprob(), -2.5);
  EXPECT_THAT(stream_.logprobs, IsEmpty()) << "the client wanted none";
  EXPECT_EQ(stream_.summary->usage().completion_tokens(), 8) << "those dropped included";
}

TEST_F(ChoicesTest, BestOfGoesThroughBothWorkersAndKeepsWantedLogprobs) {
  v1::GenerateRequest request = AskFor(1);
  request.set_best_of(2);
  request.set_max_tokens(2);
  request.mutable_sampling()->set_logprobs(0);
  Submit(request);
  Reserved();
  Say("prefill p0", {10}, 0, -3.0f);
  Say("prefill p0", {20}, 1, -1.0f);
  Close("prefill p0", kHandedOff);
  for (const int32_t index : {0, 1}) {
    Say("decode d0", {10 * index + 11}, index, -1.0f);
    EndChoice("decode d0", index, kLength);
  }
  Close("decode d0", kLength);
  ExpectOk();
  EXPECT_THAT(stream_.tokens, ElementsAre(20, 21));
  EXPECT_EQ(stream_.logprobs.size(), 2u);
  EXPECT_EQ(stream_.FinishOf(0).index(), 0);
  EXPECT_EQ(stream_.FinishOf(0).kv_bytes().raw(), 77u);
}

TEST_F(ChoicesTest, BestOfCountsTheLogprobsOfAStoppedChoice) {
  v1::GenerateRequest request = AskFor(1, v1::ROUTE_UNIFIED);
  request.set_best_of(2);
  request.add_stop("b");
  Submit(request);
  Say("generate u0", {'a'}, 0, -1.0f);
  Say("generate u0", {'x'}, 1, -2.0f);
  Say("generate u0", {'b'}, 1, -0.5f);
  Say("generate u0", {'c'}, 1, -9.0f);  // too late to count
  Say("generate u0", {'a'}, 0, -2.0f);
  EndChoice("generate u0", 0, kLength);
  Close("generate u0", kLength);
  ExpectOk();
  EXPECT_EQ(stream_.text[0], "x");
  EXPECT_DOUBLE_EQ(stream_.FinishOf(0).cumulative_logprob(), -2.5);
}

TEST_F(ChoicesTest, BestOfNIsStreamedWhileItIsGenerated) {
  v1::GenerateRequest request = AskFor(2, v1::ROUTE_UNIFIED);
  request.set_best_of(2);
  Submit(request);
  Say("generate u0", {5}, 1);
  EXPECT_THAT(stream_.ids[1], ElementsAre(5));
}

TEST_F(ChoicesTest, ARankedAnswerIsNotTakenForASlowReader) {
  stream_.capacity = 0;
  v1::GenerateRequest request = AskFor(2, v1::ROUTE_UNIFIED);
  request.set_best_of(3);
  Submit(request);
  for (const int32_t index : {0, 1, 2}) {
    for (int i = 0; i < 4; ++i) Say("generate u0", {i}, index, -1.0f);
    EndChoice("generate u0", index, kLength);
  }
  Close("generate u0", kLength);
  ExpectOk();
  EXPECT_EQ(stream_.tokens.size(), 8u);
}

}  // namespace
}  // namespace tandem::best_of_test
