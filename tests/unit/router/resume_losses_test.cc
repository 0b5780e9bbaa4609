// A request whose worker's call fails continues elsewhere, after the tokens that its client has.

#include <chrono>
#include <string>

#include "tests/support/resume_fixture.h"

namespace tandem::resume_losses_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using LossTest = ResumeFixture;  // one suite in several files

TEST_F(LossTest, DecodeLostWhileDecoding) {
  Join("d1", kDecodeRole);
  SubmitAndHandOver();
  Say("decode d0", {11});
  clock_.Advance(milliseconds(2500));
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  const uint64_t first_id = workers_.streams[0]->sequence.request_id();
  Reserved(6);
  EXPECT_NE(workers_.streams.back()->sequence.request_id(), first_id)
      << "a worker may still know the first attempt";
  Say("prefill p0", {10});
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11)) << "10 was sent before";
  EXPECT_THAT(SoFar(), ElementsAre(10, 11));
  clock_.Advance(milliseconds(7));
  Say("decode d1", {12});
  Finish("prefill p0", kHandedOff);
  Say("decode d1", {13});
  Finish("decode d1", kLength);
  ExpectTheAnswer(1);
  EXPECT_EQ(stream_.finishes[0].decode_worker(), "d1");
  const v1::ResumeUse use = router_.Status().resumes();
  EXPECT_EQ(use.lost(), 1u);
  EXPECT_EQ(use.migrated(), 0u);
  EXPECT_DOUBLE_EQ(use.p50_ms(), 7);
  EXPECT_DOUBLE_EQ(use.max_ms(), 7);
  EXPECT_DOUBLE_EQ(use.waited().max_ms(), 2507) << "since 11 was sent";
  EXPECT_EQ(Causes(), "connection 1");
}

TEST_F(LossTest, DecodeLostBeforeItsFirstEvent) {
  Join("d1", kDecodeRole);
  SubmitAndPrefill();
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1")) << "the prefill is begun anew";
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  EXPECT_THAT(SoFar(), ElementsAre(10));
  ExpectTheAnswer(1);
}

TEST_F(LossTest, DecodeLostWhileReserving) {
  Join("d1", kDecodeRole);
  Submit(Ask());
  RefuseReservation(Unavailable("Connection refused"), kNetwork);
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

// It still holds the blocks: computing the prompt elsewhere would be in vain.
TEST_F(LossTest, ThePrefillWorkerThatHasThePromptSendsItsKvAgain) {
  Join("p1", kPrefillRole);
  Join("d1", kDecodeRole);
  Join("u0", kUnifiedRole);
  v1::GenerateRequest request = Ask(v1::ROUTE_AUTO);
  cluster_.Charge({"u0", 1}, {.sequences = 1});  // so that auto disaggregates
  Submit(request);
  Reserved(5);
  Say("prefill p0", {10});
  Finish("prefill p0", kHandedOff);
  cluster_.Charge({"p0", 1}, {.sequences = 50, .prompt_tokens = 5000});
  cluster_.Discharge({"u0", 1}, {.sequences = 1});
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  cluster_.Discharge({"p0", 1}, {.sequences = 50, .prompt_tokens = 5000});
  ExpectTheAnswer(1);
}

TEST_F(LossTest, PrefillLostBeforeTheFirstToken) {
  Join("p1", kPrefillRole);
  Submit(Ask());
  Reserved(5);
  LoseCall("prefill p0");
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ContinueAt("p1", "d0", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

TEST_F(LossTest, PrefillLostBeforeItsKvArrived) {
  Join("p1", kPrefillRole);
  SubmitAndPrefill();
  LoseCall("prefill p0");
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ContinueAt("p1", "d0", 6, {11, 12, 13});
  EXPECT_THAT(SoFar(), ElementsAre(10));
  ExpectTheAnswer(1);
}

TEST_F(LossTest, UnifiedLostContinuesAfterTheEmittedTokens) {
  Join("u0", kUnifiedRole);
  Join("u1", kUnifiedRole);
  Submit(Ask(v1::ROUTE_UNIFIED));
  EXPECT_THAT(workers_.so_far, IsEmpty());
  Say("generate u0", {10});
  Say("generate u0", {11, 12});
  LoseCall("generate u0");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
  EXPECT_THAT(SoFar(), ElementsAre(10, 11, 12));
  Say("generate u1", {13});
  Finish("generate u1", kLength);
  ExpectTheAnswer(1);
}

TEST_F(LossTest, FromUnifiedToDisaggregatedAndBack) {
  Join("u0", kUnifiedRole);
  Submit(Ask(v1::ROUTE_AUTO));
  Say("generate u0", {10, 11});
  LoseCall("generate u0");
  Reserved(5);
  Say("prefill p0", {10});
  EXPECT_THAT(SoFar(), ElementsAre(10, 11));
  Say("decode d0", {12});
  Beat("u0");  // it lives again
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  EXPECT_THAT(SoFar(), ElementsAre(10, 11, 12));
  Say("generate u0", {13});
  Finish("generate u0", kLength);
  ExpectTheAnswer(2);
}

TEST_F(LossTest, TheBudgetIsThreeLosses) {
  for (const char* name : {"u0", "u1", "u2", "u3", "u4"}) Join(name, kUnifiedRole);
  Submit(Ask(v1::ROUTE_UNIFIED));
  for (const std::string name : {"u0", "u1", "u2"}) {
    const auto token = static_cast<int32_t>(10 + stream_.tokens.size());
    Say("generate " + name, {token});
    LoseCall("generate " + name);
    EXPECT_FALSE(stream_.end.has_value());
  }
  LoseCall("generate u3");
  ExpectFailed(absl::StatusCode::kUnavailable, "lost: u0, u1, u2, u3");
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11, 12));
  EXPECT_EQ(router_.Status().resumes().lost(), 3u);
  EXPECT_EQ(router_.Status().resumes().gave_up(), 1u);
}

TEST_F(LossTest, ATokenThatDiffersFromTheEmittedOneIsOurBug) {
  Join("d1", kDecodeRole);
  SubmitAndPrefill();
  LoseCall("decode d0");
  Reserved(6);
  Say("prefill p0", {77});
  EXPECT_THAT(stream_.tokens, ElementsAre(10));
  ExpectFailed(absl::StatusCode::kInternal, "prefill worker p0: token 0 of choice 0 is 77 now");
}

TEST_F(LossTest, AWorkerLostAfterTheLastTokenNeedsNoReplacement) {
  SubmitAndHandOver();
  Say("decode d0", {11, 12, 13});
  LoseCall("decode d0");
  ExpectTheAnswer(0);
}

}  // namespace
}  // namespace tandem::resume_losses_test
