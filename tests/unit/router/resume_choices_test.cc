// Requests with several choices, or with a beam search, whose worker is lost: which choices go on
// elsewhere, and from where.

#include <cstdint>

#include "tests/support/resume_fixture.h"

namespace tandem::resume_choices_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using LossTest = ResumeFixture;  // one suite in several files

TEST_F(LossTest, EachChoiceContinuesWhereItWas) {
  Join("d1", kDecodeRole);
  v1::GenerateRequest request = Ask();
  request.set_n(4);
  request.mutable_sampling()->set_logprobs(0);
  Submit(request);
  Reserved(5);
  for (int32_t i = 0; i < 3; ++i) Say("prefill p0", {10 * i}, i, -1.0f);
  Say("prefill p0", {999}, 3, -1.0f);  // EOS
  EndChoice("prefill p0", 3, kStop);
  Say("decode d0", {1}, 0, -1.0f);
  Say("decode d0", {11, 12, 13}, 1, -1.0f);
  EndChoice("decode d0", 1, kLength);
  LoseCall("decode d0");
  Reserved(6);
  for (int32_t i = 0; i < 3; ++i) Say("prefill p0", {10 * i}, i, -1.0f);
  Say("prefill p0", {999}, 3, -1.0f);
  ASSERT_EQ(workers_.so_far.size(), 4u) << "before the prefill worker said how choice 3 ended";
  EndChoice("prefill p0", 3, kStop);
  Close("prefill p0", kHandedOff);
  EXPECT_THAT(SoFar(0), ElementsAre(0, 1));
  EXPECT_THAT(SoFar(2), ElementsAre(20));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(workers_.so_far[i].ended(), i % 2 == 1) << i;
  EXPECT_DOUBLE_EQ(workers_.so_far[0].cumulative_logprob(), -2);
  Say("decode d1", {2, 3}, 0, -1.0f);
  EndChoice("decode d1", 0, kLength);
  Say("decode d1", {21, 22, 23}, 2, -1.0f);
  EndChoice("decode d1", 2, kLength);
  Close("decode d1", kLength);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_THAT(stream_.ids[0], ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(stream_.ids[1], ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(stream_.ids[2], ElementsAre(20, 21, 22, 23));
  EXPECT_THAT(stream_.ids[3], ElementsAre(999));
  EXPECT_DOUBLE_EQ(stream_.FinishOf(0).cumulative_logprob(), -4);
  EXPECT_EQ(stream_.finishes.size(), 4u);
  ExpectNothingLeft();
}

TEST_F(LossTest, AChoiceThatAStopStringEndedStaysEnded) {
  Join("u0", kUnifiedRole);
  Join("u1", kUnifiedRole);
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_n(2);
  request.set_max_tokens(6);
  request.add_stop("b");
  Submit(request);
  const int32_t b = tokenizer_.Encode("b", {})->back();
  Say("generate u0", {b}, 0);
  Say("generate u0", {10}, 1);
  EXPECT_THAT(workers_.ended_choices, ElementsAre("u0#0"));
  LoseCall("generate u0");
  ASSERT_EQ(workers_.so_far.size(), 2u);
  EXPECT_TRUE(workers_.so_far[0].ended());
  EXPECT_FALSE(workers_.so_far[1].ended());
}

TEST_F(LossTest, ABeamSearchBeginsAnew) {
  Join("u0", kUnifiedRole);
  Join("u1", kUnifiedRole);
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.mutable_beam_search()->set_beam_width(2);
  request.set_n(2);
  Submit(request);
  Say("generate u0", {10, 11}, 0);
  EndChoice("generate u0", 0, kStop);
  LoseCall("generate u0");
  EXPECT_THAT(workers_.so_far, IsEmpty());
  Say("generate u1", {10, 11}, 0);
  EndChoice("generate u1", 0, kStop);
  Say("generate u1", {20, 21, 22, 23}, 1);
  EndChoice("generate u1", 1, kLength);
  Close("generate u1", kLength);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_THAT(stream_.ids[0], ElementsAre(10, 11)) << "once";
  EXPECT_THAT(stream_.ids[1], ElementsAre(20, 21, 22, 23));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace tandem::resume_choices_test
