// Requests to a worker as the engine gets them, and its answers as messages.

#include "server/services/worker_messages.h"

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::worker_messages_test {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;

v1::SequenceRequest Sequence() {
  v1::SequenceRequest sequence;
  sequence.set_request_id(77);
  for (const int id : {1, 2, 3}) sequence.add_prompt(id);
  sequence.mutable_sampling()->set_temperature(0.5f);
  sequence.mutable_sampling()->set_seed(9);
  sequence.set_max_tokens(4);
  sequence.set_n(3);
  sequence.set_priority(-2);
  sequence.set_tenant("alice");
  sequence.set_cache_salt("salt");
  return sequence;
}

TEST(ToEngineRequestTest, CarriesEveryField) {
  const TimePoint deadline = TimePoint() + std::chrono::seconds(5);
  const EngineRequest request = ToEngineRequest(Sequence(), deadline);
  EXPECT_EQ(request.id.value(), 77u);
  EXPECT_THAT(request.prompt, ElementsAre(1, 2, 3));
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.seed, 9u) << "each choice's is derived by the engine";
  EXPECT_EQ(request.sampling.num_logprobs, -1);
  EXPECT_EQ(request.max_tokens, 4);
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(WidthOf(request), 3);
  EXPECT_FALSE(request.beams.has_value());
  EXPECT_EQ(request.priority, -2);
  EXPECT_EQ(request.deadline, deadline);
  EXPECT_EQ(request.tenant, "alice");
  EXPECT_EQ(request.cache_salt, "salt");
}

TEST(ToEngineRequestTest, CarriesConstraintsInTheOrderOfTheirTokens) {
  v1::SequenceRequest sequence = Sequence();
  EXPECT_EQ(ToEngineRequest(sequence, kNoDeadline).prompt_logprobs, -1);
  v1::SamplingParams& sampling = *sequence.mutable_sampling();
  for (const int id : {9, 2, 700, 5}) (*sampling.mutable_logit_bias())[id] = 0.5f * id;
  sampling.set_min_tokens(3);
  sampling.add_allowed_token_ids(6);
  for (const int id : {1, 2}) sequence.add_bad_words()->add_ids(id);
  sequence.mutable_bad_words(1)->add_ids(8);
  sequence.set_prompt_logprobs(4);
  for (const int id : {3, 1}) sequence.add_forced_token_ids(id);
  const EngineRequest request = ToEngineRequest(sequence, kNoDeadline);
  const TokenConstraints& constraints = request.constraints;
  std::vector<int32_t> biased;
  for (const auto& [id, bias] : constraints.logit_bias) {
    biased.push_back(id);
    EXPECT_EQ(bias, 0.5f * static_cast<float>(id));
  }
  EXPECT_THAT(biased, ElementsAre(2, 5, 9, 700));
  EXPECT_EQ(constraints.min_tokens, 3);
  EXPECT_THAT(constraints.allowed_token_ids, ElementsAre(6));
  EXPECT_THAT(constraints.bad_words, ElementsAre(ElementsAre(1), ElementsAre(2, 8)));
  EXPECT_EQ(request.prompt_logprobs, 4);
  EXPECT_THAT(constraints.forced_token_ids, ElementsAre(3, 1));
}

TEST(ToEngineRequestTest, CarriesABeamSearch) {
  v1::SequenceRequest sequence = Sequence();
  sequence.mutable_beam_search()->set_beam_width(8);
  sequence.mutable_beam_search()->set_length_penalty(0.5f);
  using Proto = v1::BeamSearch;
  using Engine = BeamParams::EarlyStopping;
  const std::pair<Proto::EarlyStopping, Engine> stoppings[] = {
      {Proto::EARLY_STOPPING_HEURISTIC, Engine::kHeuristic},
      {Proto::EARLY_STOPPING_FIRST, Engine::kFirst},
      {Proto::EARLY_STOPPING_NEVER, Engine::kNever}};
  for (const auto& [proto, engine] : stoppings) {
    sequence.mutable_beam_search()->set_early_stopping(proto);
    const EngineRequest request = ToEngineRequest(sequence, kNoDeadline);
    ASSERT_TRUE(request.beams.has_value());
    EXPECT_EQ(request.beams->width, 8);
    EXPECT_EQ(request.beams->length_penalty, 0.5f);
    EXPECT_EQ(request.beams->early_stopping, engine);
    EXPECT_EQ(WidthOf(request), 8);
    EXPECT_EQ(request.n, 3);
  }
}

SampledToken Token(int32_t id, float logprob) {
  return {.token_id = id, .logprob = logprob, .top = {{id, logprob}, {id + 1, logprob - 1}}};
}

TEST(ToDecodeRequestTest, FirstTokensTravelFromWorkerToWorker) {
  v1::DecodeRequest request;
  *request.mutable_sequence() = Sequence();
  request.set_reservation_id(5);
  for (const int32_t id : {10, 20, 30}) {
    *request.add_first_tokens() = ToTokenLogprobs(Token(id, -0.5f));
  }
  const DecodeRequest decode = ToDecodeRequest(request, kNoDeadline);
  EXPECT_EQ(decode.reservation.value(), 5u);
  EXPECT_EQ(decode.request.n, 3);
  ASSERT_EQ(decode.first_tokens.size(), 3u);
  EXPECT_EQ(decode.first_tokens[1].token_id, 20);
  EXPECT_EQ(decode.first_tokens[1].logprob, -0.5f);
  ASSERT_EQ(decode.first_tokens[2].top.size(), 2u);
  EXPECT_EQ(decode.first_tokens[2].top[1].token_id, 31);
  EXPECT_EQ(decode.first_tokens[2].top[1].logprob, -1.5f);
}

TEST(ToEngineRequestTest, WhatWasSaidTravelsToWhoGoesOn) {
  v1::GenerateOnWorkerRequest unified;
  *unified.mutable_sequence() = Sequence();
  EXPECT_TRUE(ToEngineRequest(unified, kNoDeadline).so_far.empty());
  v1::DecodeRequest decode;
  *decode.mutable_sequence() = Sequence();
  for (auto* request : {unified.mutable_so_far(), decode.mutable_so_far()}) {
    v1::OutputSoFar& first = *request->Add();
    first.add_token_ids(10);
    first.add_token_ids(11);
    first.set_cumulative_logprob(-1.25);
    request->Add()->set_ended(true);
  }
  for (const EngineRequest& request :
       {ToEngineRequest(unified, kNoDeadline), ToDecodeRequest(decode, kNoDeadline).request}) {
    ASSERT_EQ(request.so_far.size(), 2u);
    EXPECT_THAT(request.so_far[0].token_ids, ElementsAre(10, 11));
    EXPECT_EQ(request.so_far[0].cumulative_logprob, -1.25);
    EXPECT_FALSE(request.so_far[0].ended);
    EXPECT_TRUE(request.so_far[1].ended);
  }
}

TEST(ToWorkerTokensTest, LogprobsOnlyWhenWanted) {
  const std::vector<SampledToken> tokens = {Token(1, -1), Token(2, -2)};
  const v1::WorkerTokens bare = ToWorkerTokens(tokens, LogprobsWanted::kNo);
  EXPECT_EQ(bare.token_ids_size(), 2);
  EXPECT_EQ(bare.logprobs_size(), 0);
  const v1::WorkerTokens full = ToWorkerTokens(tokens, LogprobsWanted::kYes);
  ASSERT_EQ(full.logprobs_size(), 2);
  EXPECT_EQ(full.logprobs(1).sampled().logprob(), -2);
  EXPECT_EQ(full.logprobs(1).top_size(), 2);
}

TEST(ToProtoTest, EveryReasonOfAChoicesEnd) {
  const std::pair<FinishReason, v1::WorkerFinish::Reason> reasons[] = {
      {FinishReason::kNone, v1::WorkerFinish::REASON_UNSPECIFIED},
      {FinishReason::kStop, v1::WorkerFinish::REASON_STOP},
      {FinishReason::kLength, v1::WorkerFinish::REASON_LENGTH},
      {FinishReason::kHandedOff, v1::WorkerFinish::REASON_HANDED_OFF},
      {FinishReason::kEnded, v1::WorkerFinish::REASON_ENDED}};
  for (const auto& [reason, expected] : reasons) {
    const v1::WorkerChoiceFinish finish =
        ToProto(ChoiceEnd{.index = 2, .reason = reason, .cumulative_logprob = -3, .score = -1.5});
    EXPECT_EQ(finish.reason(), expected);
    EXPECT_EQ(finish.index(), 2);
    EXPECT_EQ(finish.cumulative_logprob(), -3);
    EXPECT_EQ(finish.score(), -1.5);
  }
}

TEST(ToProtoTest, AFinishSaysWhatTheRequestCost) {
  FinishInfo info;
  info.reason = FinishReason::kHandedOff;
  info.stages.prefill = microseconds(30);
  info.kv = {.raw_bytes = 10,
             .wire_bytes = 12,
             .duration = microseconds(7),
             .exposed = {},
             .hidden_bytes = 9,
             .parts = {{},
                       {.k = {.kv_bytes = 5, .wire_bytes = 4, .escapes = 3},
                        .v = {.kv_bytes = 6, .wire_bytes = 2, .escapes = 1},
                        .blocks = 8,
                        .raw_blocks = 7}}};
  info.cached_tokens = 64;
  info.preemptions = 2;
  const v1::WorkerFinish finish = ToProto(info);
  EXPECT_EQ(finish.reason(), v1::WorkerFinish::REASON_HANDED_OFF);
  EXPECT_EQ(finish.stages().prefill_us(), 30);
  EXPECT_EQ(finish.kv().wire_bytes(), 12u);
  EXPECT_EQ(finish.kv().duration_us(), 7);
  EXPECT_EQ(finish.kv().hidden_bytes(), 9u);
  ASSERT_EQ(finish.kv().layers_size(), 2);
  const v1::KvLayerBytes& layer = finish.kv().layers(1);
  EXPECT_EQ(layer.k_kv_bytes(), 5u);
  EXPECT_EQ(layer.k_wire_bytes(), 4u);
  EXPECT_EQ(layer.k_escapes(), 3u);
  EXPECT_EQ(layer.v_kv_bytes(), 6u);
  EXPECT_EQ(layer.v_wire_bytes(), 2u);
  EXPECT_EQ(layer.v_escapes(), 1u);
  EXPECT_EQ(layer.blocks(), 8);
  EXPECT_EQ(layer.raw_blocks(), 7);
  EXPECT_EQ(finish.cached_tokens(), 64);
  EXPECT_EQ(finish.preemptions(), 2);
}

}  // namespace
}  // namespace tandem::worker_messages_test
