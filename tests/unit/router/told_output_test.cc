#include "router/attempt/told_output.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ToldOutputTest : public testing::Test {
 protected:
  ToldOutputTest() {
    sequence_.set_n(2);
    sequence_.set_max_tokens(4);
    sequence_.add_stop_token_ids(9);
  }

  static v1::WorkerTokens Tokens(const std::vector<int32_t>& ids, int32_t index = 0) {
    v1::WorkerTokens tokens;
    tokens.set_index(index);
    tokens.mutable_stages()->set_prefill_us(3);
    for (const int32_t id : ids) {
      tokens.add_token_ids(id);
      tokens.add_logprobs()->mutable_sampled()->set_logprob(-0.5f);
    }
    return tokens;
  }
  std::vector<int32_t> Take(ToldOutput& told, const std::vector<int32_t>& ids, int32_t index = 0) {
    const auto fresh = told.Take(Tokens(ids, index));
    EXPECT_TRUE(fresh.ok()) << fresh.status();
    EXPECT_EQ(fresh->index(), index);
    EXPECT_EQ(fresh->stages().prefill_us(), 3);
    EXPECT_EQ(fresh->logprobs_size(), fresh->token_ids_size());
    return {fresh->token_ids().begin(), fresh->token_ids().end()};
  }

  v1::SequenceRequest sequence_;
};

TEST_F(ToldOutputTest, EachPositionPassesOnce) {
  ToldOutput told(sequence_);
  EXPECT_FALSE(told.any());
  EXPECT_THAT(Take(told, {1, 2}), ElementsAre(1, 2));
  told.ListenFromStart();
  EXPECT_THAT(Take(told, {1}), IsEmpty());
  EXPECT_THAT(Take(told, {2, 3}), ElementsAre(3)) << "half of it is new";
  told.ListenBehind();
  EXPECT_THAT(Take(told, {4}), ElementsAre(4));
  EXPECT_THAT(Take(told, {7}, 1), ElementsAre(7)) << "the other choice is at its start";
  EXPECT_EQ(told.SoFar(0).token_ids_size(), 4);
  EXPECT_DOUBLE_EQ(told.SoFar(0).cumulative_logprob(), -2);
}

TEST_F(ToldOutputTest, AnotherTokenThanWasToldIsAnError) {
  ToldOutput told(sequence_);
  Take(told, {1, 2});
  told.ListenFromStart();
  EXPECT_TRUE(absl::IsInternal(told.Take(Tokens({1, 3})).status()));
}

TEST_F(ToldOutputTest, KnowsWhatEndsAChoice) {
  ToldOutput told(sequence_);
  EXPECT_EQ(told.ReasonOf(0), v1::WorkerFinish::REASON_UNSPECIFIED);
  Take(told, {1, 2, 3});
  EXPECT_EQ(told.ReasonOf(0), v1::WorkerFinish::REASON_UNSPECIFIED);
  EXPECT_FALSE(told.SoFar(0).ended());
  Take(told, {4});
  EXPECT_EQ(told.ReasonOf(0), v1::WorkerFinish::REASON_LENGTH);
  EXPECT_TRUE(told.SoFar(0).ended());
  EXPECT_FALSE(told.ended(0)) << "nobody said so yet";
  Take(told, {9}, 1);
  EXPECT_EQ(told.ReasonOf(1), v1::WorkerFinish::REASON_STOP);
  told.End(1);
  EXPECT_TRUE(told.ended(1));
}

}  // namespace
}  // namespace tandem
