#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/router/choices_fixture.h"

namespace tandem::beam_choices_test {
namespace {

using choices::ChoicesTest;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Beam search: one start from the prefill worker, whole hypotheses from the one that decodes.
class BeamsTest : public ChoicesTest {
 protected:
  v1::GenerateRequest AskForBeams(v1::Route route = v1::ROUTE_DISAGGREGATED) {
    v1::GenerateRequest request = AskFor(2, route);
    request.mutable_beam_search()->set_beam_width(3);
    return request;
  }
  void StartBeams(const std::string& call) {
    v1::WorkerEvent event;
    v1::TokenLogprobs& first = *event.mutable_beam_start()->mutable_first();
    for (const int32_t id : {7, 8, 9}) first.add_top()->set_token_id(id);
    event.mutable_beam_start()->mutable_stages()->set_prefill_us(3000);
    Say(call, event);
  }
  void EndHypothesis(const std::string& call, int32_t index, double score) {
    v1::WorkerEvent event;
    event.mutable_choice_finish()->set_index(index);
    event.mutable_choice_finish()->set_reason(kStop);
    event.mutable_choice_finish()->set_score(score);
    event.mutable_choice_finish()->set_cumulative_logprob(2 * score);
    Say(call, event);
  }
};

TEST_F(BeamsTest, TheFirstCandidatesGoToTheDecodeWorkerAndNotToTheClient) {
  Submit(AskForBeams());
  EXPECT_EQ(workers_.reservations.back()->request.width(), 3);
  clock_.Advance(milliseconds(2));
  Reserved();
  EXPECT_EQ(workers_.streams[0]->sequence.n(), 2);
  EXPECT_EQ(workers_.streams[0]->sequence.beam_search().beam_width(), 3);
  EXPECT_EQ(workers_.streams[0]->sequence.beam_search().length_penalty(), 1);
  EXPECT_EQ(router_.Status().requests_in_flight(), 3);
  clock_.Advance(milliseconds(5));
  StartBeams("prefill p0");
  EXPECT_THAT(stream_.tokens, IsEmpty());
  ASSERT_EQ(workers_.first_tokens.size(), 1u);
  EXPECT_EQ(workers_.first_tokens[0].top_size(), 3);
  EXPECT_EQ(workers_.first_tokens[0].top(1).token_id(), 8);
  Close("prefill p0", kHandedOff);
  clock_.Advance(milliseconds(50));
  for (const int32_t index : {0, 1}) {
    Say("decode d0", {7, 20 + index, 999}, index);
    EndHypothesis("decode d0", index, -1.0 - index);
  }
  Close("decode d0", kStop);
  ExpectOk();
  EXPECT_THAT(stream_.ids[1], ElementsAre(7, 21, 999));
  const v1::ChoiceFinish& finish = stream_.FinishOf(1);
  EXPECT_DOUBLE_EQ(finish.score(), -2);
  EXPECT_DOUBLE_EQ(finish.cumulative_logprob(), -4);
  EXPECT_DOUBLE_EQ(finish.stages().prefill_ms(), 3) << "as the worker that prefilled said";
  EXPECT_DOUBLE_EQ(finish.stages().ttft_ms(), 57) << "nothing is sent before the search has ended";
}

TEST_F(BeamsTest, ABeamSearchForOneTokenNeedsNoDecode) {
  v1::GenerateRequest request = AskForBeams();
  request.set_max_tokens(1);
  Submit(request);
  Reserved();
  for (const int32_t index : {0, 1}) {
    Say("prefill p0", {7 + index}, index);
    EndHypothesis("prefill p0", index, -1.0 - index);
  }
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  Close("prefill p0", kLength);
  ExpectOk();
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  EXPECT_THAT(stream_.tokens, ElementsAre(7, 8));
}

TEST_F(BeamsTest, ALongHypothesisIsSentInSeveralChunks) {
  Submit(AskForBeams());
  Reserved();
  StartBeams("prefill p0");
  Close("prefill p0", kHandedOff);
  std::vector<int32_t> long_one(2500);
  for (int32_t i = 0; i < 2500; ++i) long_one[i] = i % 900;
  for (const int32_t index : {0, 1}) {
    Say("decode d0", long_one, index);
    EndHypothesis("decode d0", index, -1.0 - index);
  }
  Close("decode d0", kLength);
  ExpectOk();
  EXPECT_EQ(stream_.ids[1], long_one);
  EXPECT_EQ(stream_.most_tokens, 1024);
  EXPECT_EQ(stream_.FinishOf(0).completion_tokens(), 2500);
}

TEST_F(BeamsTest, ADecodeWorkerLostBeforeAnyHypothesisIsRetriedElsewhere) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Submit(AskForBeams());
  Reserved(5);
  StartBeams("prefill p0");
  Close("prefill p0", kHandedOff);
  End("decode d0", Unavailable("Socket closed"), kNetwork);
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  Reserved(6);
  StartBeams("prefill p0");
  Close("prefill p0", kHandedOff);
  for (const int32_t index : {0, 1}) {
    Say("decode d1", {7, 999}, index);
    EndHypothesis("decode d1", index, -1.0 - index);
  }
  Close("decode d1", kStop);
  ExpectOk();
  EXPECT_EQ(stream_.summary->usage().preemptions(), 2) << "of the attempt that counts";
}

}  // namespace
}  // namespace tandem::beam_choices_test
