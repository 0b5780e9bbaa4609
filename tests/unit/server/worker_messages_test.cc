#include "server/services/worker_messages.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::worker_messages_test {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(ToReserveRequestTest, CarriesEveryField) {
  v1::ReserveRequest request;
  request.set_request_id(7);
  for (const int id : {4, 5}) request.add_prompt(id);
  request.set_max_tokens(6);
  request.set_width(8);
  request.set_priority(1);
  const KvLayout layout = {
      .num_layers = 2, .num_kv_heads = 3, .head_dim = 64, .block_tokens = 32, .dtype = DType::kF16};
  *request.mutable_layout() = ToProto(layout);
  request.set_model_fingerprint(99);
  request.set_tenant("bob");
  request.set_cache_salt("pepper");
  const auto read = ToReserveRequest(request, kNoDeadline);
  ASSERT_TRUE(read.ok()) << read.status();
  const ReserveRequest& reserve = *read;
  EXPECT_EQ(reserve.id.value(), 7u);
  EXPECT_THAT(reserve.prompt, ElementsAre(4, 5));
  EXPECT_EQ(reserve.max_tokens, 6);
  EXPECT_EQ(reserve.width, 8);
  EXPECT_EQ(reserve.priority, 1);
  EXPECT_EQ(reserve.layout, layout);
  EXPECT_EQ(reserve.model_fingerprint, 99u);
  EXPECT_EQ(reserve.tenant, "bob");
  EXPECT_EQ(reserve.cache_salt, "pepper");
}

TEST(ToReserveRequestTest, ALayoutThatCannotBeIsRefused) {
  v1::ReserveRequest request;
  EXPECT_EQ(ToReserveRequest(request, kNoDeadline).status().code(),
            absl::StatusCode::kInvalidArgument);
  v1::KvLayout& layout = *request.mutable_layout();
  layout = ToProto(KvLayout{.num_layers = 2, .num_kv_heads = 3, .head_dim = 64});
  EXPECT_TRUE(ToReserveRequest(request, kNoDeadline).ok());
  layout.set_block_tokens(1 << 30);
  EXPECT_EQ(ToReserveRequest(request, kNoDeadline).status().code(),
            absl::StatusCode::kInvalidArgument);
}

v1::PrefillRequest PrefillOf(int32_t prompt_tokens) {
  v1::PrefillRequest request;
  for (int32_t i = 0; i < prompt_tokens; ++i) request.mutable_sequence()->add_prompt(i);
  return request;
}

TEST(ToReserveResponseTest, WhatTheSenderIsTold) {
  const v1::ReserveResponse response = ToProto({.id = ReservationId(3),
                                                .epoch = 4,
                                                .cached_tokens = 48,
                                                .lease = std::chrono::seconds(3),
                                                .queued = microseconds(250)},
                                               "tcp:host:1");
  EXPECT_EQ(response.queued_us(), 250);
  v1::PrefillRequest prefill = PrefillOf(48);
  *prefill.mutable_target() = response.target();
  const auto target = ToHandoffTarget(prefill);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->data_address, "tcp:host:1");
  EXPECT_EQ(target->reservation.value(), 3u);
  EXPECT_EQ(target->epoch, 4u);
  EXPECT_EQ(target->cached_tokens, 48);
  EXPECT_EQ(target->lease, std::chrono::seconds(3));
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

// The target comes from another worker: refusing it as INVALID_ARGUMENT would blame the client.
// Both ends of what is allowed, and what is beyond them: the prompt less what is cached, and a
// lease in nanoseconds, are computed with.
TEST(ToHandoffTargetTest, CachedTokensAreOfThePrompt) {
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  v1::PrefillRequest request = PrefillOf(5);
  for (const auto& [cached, fine] : std::vector<std::pair<int32_t, bool>>{
           {kLeast, false}, {-1, false}, {0, true}, {5, true}, {6, false}, {kMost, false}}) {
    request.mutable_target()->set_cached_tokens(cached);
    const absl::Status status = ToHandoffTarget(request).status();
    EXPECT_EQ(status.ok(), fine) << cached;
    if (fine) continue;
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cached_tokens=" + std::to_string(cached)));
  }
}

TEST(ToHandoffTargetTest, LeasesAreBounded) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kDay = 24 * 60 * 60 * 1000;
  v1::PrefillRequest request = PrefillOf(5);
  for (const auto& [lease_ms, fine] :
       std::vector<std::pair<int64_t, bool>>{{kLeast, false},
                                             {-1, false},
                                             {0, true},
                                             {kDay, true},
                                             {kDay + 1, false},
                                             {kMost / 1000000, false},
                                             {kMost, false}}) {
    request.mutable_target()->set_lease_ms(lease_ms);
    const auto target = ToHandoffTarget(request);
    EXPECT_EQ(target.ok(), fine) << lease_ms;
    if (fine) {
      EXPECT_EQ(target->lease, std::chrono::milliseconds(lease_ms));
      continue;
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(target.status())) << target.status();
    EXPECT_THAT(std::string(target.status().message()),
                HasSubstr("lease_ms=" + std::to_string(lease_ms)));
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

TEST(ToLoadTest, CarriesTheHandoffs) {
  EngineStats stats;
  stats.handoffs = 1;
  stats.reservations = 2;
  stats.waiting_reservations = 3;
  stats.draining_reservations = 9;
  stats.handoff_counts = {.sent = 4, .received = 5, .retried = 6, .lapsed = 7, .refused = 8};
  const v1::HandoffUse use = ToLoad(stats).handoffs();
  EXPECT_EQ(use.sending(), 1);
  EXPECT_EQ(use.reservations(), 2);
  EXPECT_EQ(use.waiting_reservations(), 3);
  EXPECT_EQ(use.draining_reservations(), 9);
  EXPECT_EQ(use.sent(), 4u);
  EXPECT_EQ(use.received(), 5u);
  EXPECT_EQ(use.retried(), 6u);
  EXPECT_EQ(use.lapsed(), 7u);
  EXPECT_EQ(use.refused(), 8u);
}

TEST(ToLoadTest, CarriesTheCostModelOnceThereIsOne) {
  EngineStats stats;
  stats.scheduler.decode_context_tokens = 700;
  stats.scheduler.expected_decode_tokens = 90;
  EXPECT_FALSE(ToLoad(stats).has_cost());
  StepCoefficients known;
  known.alpha = {.floor_ms = 1, .base_ms = 2, .token_ms = 0.5, .pair_ms = 0.25};
  known.beta = {.buckets = {{.max_sequences = 4, .base_ms = 3}},
                .sequence_ms = 0.125,
                .context_token_ms = 0.0625};
  stats.costs = {.model = std::make_shared<const StepModel>(*StepModel::Create(known)),
                 .source = CostSource::kMeasured,
                 .revision = 7,
                 .error = 0.1,
                 .drift = 1.5,
                 .steps = 42};
  const v1::WorkerLoad load = ToLoad(stats);
  EXPECT_EQ(load.decode_context_tokens(), 700);
  EXPECT_EQ(load.expected_decode_tokens(), 90);
  const v1::CostModel& cost = load.cost();
  EXPECT_EQ(cost.source(), v1::CostModel::SOURCE_MEASURED);
  EXPECT_EQ(cost.revision(), 7u);
  EXPECT_EQ(cost.error(), 0.1);
  EXPECT_EQ(cost.drift(), 1.5);
  EXPECT_EQ(cost.steps(), 42u);
  EXPECT_EQ(cost.alpha().token_ms(), 0.5);
  EXPECT_EQ(cost.beta().buckets(0).base_ms(), 3);
}

TEST(ToLoadTest, CarriesTheUseOfThePool) {
  EngineStats stats;
  stats.scheduler.running = 3;
  stats.scheduler.parked = 1;
  stats.scheduler.waiting = 5;
  stats.scheduler.prefilling = 2;
  stats.scheduler.swapped = 4;
  stats.scheduler.preempted_recompute = 6;
  stats.scheduler.preempted_swap = 7;
  stats.fragmentation = 0.25;
  stats.kv = {.total_blocks = 100,
              .free_blocks = 40,
              .cached_blocks = 30,
              .idle_blocks = 20,
              .shared_blocks = 10,
              .pinned_blocks = 5,
              .copied_blocks = 1,
              .evicted_blocks = 2,
              .hit_tokens = 300,
              .query_tokens = 400,
              .host_budget_bytes = 1000,
              .host_used_bytes = 500,
              .host_prefix_blocks = 8,
              .swapped_blocks = 9,
              .swapped_out_blocks = 11,
              .swapped_in_blocks = 12,
              .demoted_blocks = 13,
              .restored_blocks = 14};
  const v1::WorkerLoad load = ToLoad(stats);
  EXPECT_EQ(load.running(), 4);
  EXPECT_EQ(load.waiting(), 11) << "what was swapped out waits for room";
  EXPECT_EQ(load.total_blocks(), 100);
  EXPECT_EQ(load.free_blocks(), 40);
  const v1::KvUse& kv = load.kv();
  EXPECT_EQ(kv.cached_blocks(), 30);
  EXPECT_EQ(kv.idle_blocks(), 20);
  EXPECT_EQ(kv.shared_blocks(), 10);
  EXPECT_EQ(kv.pinned_blocks(), 5);
  EXPECT_EQ(kv.copied_blocks(), 1u);
  EXPECT_EQ(kv.evicted_blocks(), 2u);
  EXPECT_EQ(kv.hit_tokens(), 300u);
  EXPECT_EQ(kv.query_tokens(), 400u);
  EXPECT_EQ(kv.host_budget_bytes(), 1000u);
  EXPECT_EQ(kv.host_used_bytes(), 500u);
  EXPECT_EQ(kv.host_prefix_blocks(), 8);
  EXPECT_EQ(kv.swapped_blocks(), 9);
  EXPECT_EQ(kv.swapped(), 4);
  EXPECT_EQ(kv.swapped_out_blocks(), 11u);
  EXPECT_EQ(kv.swapped_in_blocks(), 12u);
  EXPECT_EQ(kv.demoted_blocks(), 13u);
  EXPECT_EQ(kv.restored_blocks(), 14u);
  EXPECT_EQ(kv.preempted_recompute(), 6u);
  EXPECT_EQ(kv.preempted_swap(), 7u);
  EXPECT_EQ(kv.fragmentation(), 0.25);
}

TEST(ToLoadTest, SaysHowMuchSmallerKvLiesOnTheHost) {
  EngineStats stats;
  stats.kv = {.host_raw_bytes = 150, .host_stored_bytes = 100, .host_unfit_blocks = 15};
  const v1::KvUse kv = ToLoad(stats).kv();
  EXPECT_EQ(kv.host_raw_bytes(), 150u);
  EXPECT_EQ(kv.host_stored_bytes(), 100u);
  EXPECT_EQ(kv.host_unfit_blocks(), 15u);
}

}  // namespace
}  // namespace tandem::worker_messages_test
