#include "tests/support/test_engine.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/rng.h"
#include "tests/support/recording_sink.h"
#include "tests/support/wait_limit.h"

namespace tandem {

TestEngine::TestEngine(const TestEngineSetup& setup)
    : model_(TestModel::Load(setup.checkpoint, setup.num_threads, setup.device)),
      weights_(std::make_unique<GatedWeights>(*model_->weights, gate_)) {
  const ModelConfig& config = model_->config;
  const EngineOptions options{.role = setup.role,
                              .layout = {.num_layers = config.num_layers,
                                         .num_kv_heads = config.num_kv_heads,
                                         .head_dim = config.head_dim,
                                         .block_tokens = setup.block_tokens,
                                         .dtype = setup.kv_dtype},
                              .num_blocks = setup.num_blocks,
                              .max_context_tokens = setup.max_context_tokens > 0
                                                        ? setup.max_context_tokens
                                                        : config.max_position_embeddings,
                              .scheduler = setup.scheduler,
                              .model_fingerprint = 1,
                              .epoch = setup.epoch,
                              .prefix_caching = setup.prefix_caching,
                              .host_bytes = setup.host_bytes,
                              .inbox_capacity = setup.inbox_capacity,
                              .splits = setup.splits,
                              .reservation_lease = setup.reservation_lease,
                              .max_waiting_reservations = setup.max_waiting_reservations,
                              .max_reservation_wait = setup.max_reservation_wait,
                              .conversion_slots = setup.conversion_slots,
                              .least_post_bytes = setup.least_post_bytes,
                              .wire_codec = setup.wire_codec,
                              .probes_codecs = setup.probes_codecs,
                              .kv_sensitivity = setup.kv_sensitivity,
                              .codec_threads = setup.codec_threads,
                              .kv_dump_directory = setup.kv_dump_directory,
                              .costs = setup.costs,
                              .canary_interval = setup.canary_interval,
                              .check_invariants = true};
  const Clock& clock = setup.clock != nullptr ? *setup.clock : real_clock_;
  if (setup.wrap_device) wrapped_device_ = setup.wrap_device(*model_->backend.device);
  auto engine = Engine::Create(
      options,
      {.model = config,
       .device = wrapped_device_ ? *wrapped_device_ : device(),
       .ops = *model_->backend.ops,
       .weights = setup.gated ? static_cast<WeightStore*>(weights_.get()) : model_->weights.get(),
       .clock = clock});
  TANDEM_CHECK(engine.ok(), engine.status().ToString());
  engine_ = *std::move(engine);
}

TestEngine::~TestEngine() { Die(); }

void TestEngine::Die() {
  gate_.Break(absl::UnavailableError("this worker was killed"));
  engine_->Shutdown(TimePoint::min());
  transport_.reset();
}

void TestEngine::Connect(std::unique_ptr<Transport> transport) {
  transport_ = std::move(transport);
  engine_->SetTransport(transport_.get());
}

absl::StatusOr<Reservation> TestEngine::Reserve(ReserveRequest request) {
  absl::Notification answered;
  absl::StatusOr<Reservation> answer;
  if (request.layout == KvLayout{}) request.layout = layout();
  request.model_fingerprint = engine_->options().model_fingerprint;
  engine_->Reserve(request, [&](absl::StatusOr<Reservation> reservation) {
    answer = std::move(reservation);
    answered.Notify();
  });
  Await(answered);
  return answer;
}

absl::StatusOr<Reservation> TestEngine::ReserveFor(const EngineRequest& request) {
  return Reserve(ReservationFor(request));
}

absl::StatusOr<Reservation> TestEngine::ReserveFor(const EngineRequest& request,
                                                   const KvLayout& layout) {
  ReserveRequest reservation = ReservationFor(request);
  reservation.layout = layout;
  return Reserve(std::move(reservation));
}

absl::StatusOr<Reservation> TestEngine::ReserveAtOnce(const ReserveRequest& request) {
  absl::Notification answered;
  absl::StatusOr<Reservation> answer;
  const ReserveTicket ticket =
      engine_->Reserve(request, [&](absl::StatusOr<Reservation> reservation) {
        answer = std::move(reservation);
        answered.Notify();
      });
  engine_->CancelReserve(ticket);  // comes after it has been looked at
  Await(answered);
  return answer;
}

ReserveRequest TestEngine::ReservationFor(const EngineRequest& request) const {
  return {.id = request.id,
          .prompt = request.prompt,
          .max_tokens = std::max(request.max_tokens, 1),  // as routers reserve
          .width = WidthOf(request),
          .priority = request.priority,
          .layout = layout(),
          .model_fingerprint = engine_->options().model_fingerprint,
          .deadline = request.deadline,
          .tenant = request.tenant,
          .cache_salt = request.cache_salt,
          .quality = request.quality,
          .eviction = request.eviction};
}

absl::StatusOr<Reservation> TestEngine::Reserve(int32_t prompt_tokens, int32_t max_tokens) {
  return Reserve({.prompt = RandomPrompt(++reserved_, prompt_tokens, model_->config.vocab_size),
                  .max_tokens = max_tokens});
}

// The second answer comes after the round that handled the first, its stats included.
void TestEngine::Settle() {
  for (int i = 0; i < 2; ++i) (void)Reserve(ReserveRequest{});
}

::testing::AssertionResult TestEngine::AtRest() {
  // A copy ahead of evictions may outlast the requests; its blocks come back when it has ended.
  const absl::Time give_up_at = absl::Now() + WaitLimit();
  while (engine_->stats().kv.pinned_blocks > 0 && absl::Now() < give_up_at) {
    std::this_thread::yield();
  }
  const EngineStats stats = engine_->stats();
  const int32_t unused = stats.kv.free_blocks + stats.kv.idle_blocks;
  if (unused == stats.kv.total_blocks && stats.kv.swapped_blocks == 0 && stats.reservations == 0 &&
      stats.waiting_reservations == 0 && stats.handoffs == 0 &&
      stats.requests_accepted == stats.requests_finished) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << unused << " of " << stats.kv.total_blocks << " blocks free or idle, "
         << stats.kv.swapped_blocks << " swapped, " << stats.reservations << " reservations, "
         << stats.waiting_reservations << " waiting, " << stats.handoffs << " hand-offs, "
         << stats.requests_finished << " of " << stats.requests_accepted << " requests finished";
}

EngineRequest Greedy(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  return {.id = RequestId(id),
          .prompt = std::move(prompt),
          .sampling = {.temperature = 0},
          .max_tokens = max_tokens};
}

void ExpectShortOutputs(TestEngine& engine) {
  constexpr uint64_t kRequests = 12;
  constexpr uint64_t kFirstId = uint64_t{1} << 40;
  const int32_t vocab_size = engine.model().vocab_size;
  std::vector<Recording> recordings(kRequests);
  for (uint64_t i = 0; i < kRequests; ++i) {
    EngineRequest request = Greedy(kFirstId + i, RandomPrompt(kFirstId + i, 20, vocab_size), 60);
    request.sampling = {.temperature = 0.9f, .seed = i};
    for (int32_t id = 0; id < vocab_size; id += 3) request.stop_token_ids.push_back(id);
    engine->Submit(request, recordings[i].NewSink());
  }
  for (Recording& recording : recordings) {
    EXPECT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
  }
}

std::vector<int32_t> RandomPrompt(uint64_t seed, int32_t count, int32_t vocab_size) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(UniformAt(seed, static_cast<uint64_t>(i)) * vocab_size));
  }
  return ids;
}

}  // namespace tandem
