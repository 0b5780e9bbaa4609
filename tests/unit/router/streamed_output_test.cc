#include "router/attempt/streamed_output.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::streamed_output_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StreamedOutputTest : public testing::Test {
 protected:
  StreamedOutputTest() {
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
  std::vector<int32_t> Take(StreamedOutput& output, const std::vector<int32_t>& ids,
                            int32_t index = 0) {
    const auto fresh = output.Add(Tokens(ids, index));
    EXPECT_TRUE(fresh.ok()) << fresh.status();
    EXPECT_EQ(fresh->index(), index);
    EXPECT_EQ(fresh->stages().prefill_us(), 3);
    EXPECT_EQ(fresh->logprobs_size(), fresh->token_ids_size());
    return {fresh->token_ids().begin(), fresh->token_ids().end()};
  }

  v1::SequenceRequest sequence_;
};

TEST_F(StreamedOutputTest, EachPositionIsEmittedOnce) {
  StreamedOutput output(sequence_);
  EXPECT_FALSE(output.any());
  EXPECT_THAT(Take(output, {1, 2}), ElementsAre(1, 2));
  output.ExpectFromStart();
  EXPECT_THAT(Take(output, {1}), IsEmpty());
  EXPECT_THAT(Take(output, {2, 3}), ElementsAre(3)) << "half of it is new";
  output.ExpectAfterEmitted();
  EXPECT_THAT(Take(output, {4}), ElementsAre(4));
  EXPECT_THAT(Take(output, {7}, 1), ElementsAre(7)) << "the other choice is at its start";
  EXPECT_EQ(output.Emitted(0).token_ids_size(), 4);
  EXPECT_DOUBLE_EQ(output.Emitted(0).cumulative_logprob(), -2);
}

TEST_F(StreamedOutputTest, ATokenThatDiffersFromTheOneEmittedIsAnError) {
  StreamedOutput output(sequence_);
  Take(output, {1, 2});
  output.ExpectFromStart();
  EXPECT_TRUE(absl::IsInternal(output.Add(Tokens({1, 3})).status()));
}

TEST_F(StreamedOutputTest, TheLastTokenSaysWhyAChoiceEnds) {
  StreamedOutput output(sequence_);
  EXPECT_EQ(output.ReasonOf(0), v1::WorkerFinish::REASON_UNSPECIFIED);
  Take(output, {1, 2, 3});
  EXPECT_EQ(output.ReasonOf(0), v1::WorkerFinish::REASON_UNSPECIFIED);
  EXPECT_FALSE(output.Emitted(0).ended());
  Take(output, {4});
  EXPECT_EQ(output.ReasonOf(0), v1::WorkerFinish::REASON_LENGTH);
  EXPECT_TRUE(output.Emitted(0).ended());
  EXPECT_FALSE(output.ended(0)) << "no worker has said so yet";
  Take(output, {9}, 1);
  EXPECT_EQ(output.ReasonOf(1), v1::WorkerFinish::REASON_STOP);
  output.End(1);
  EXPECT_TRUE(output.ended(1));
}

}  // namespace
}  // namespace tandem::streamed_output_test
