// Some hundred requests of random lengths and sampling, with several choices, beams and shared
// prefixes, unified and disaggregated, in pools that are too small for them, many of them
// cancelled, released, over their deadline or refused at a random moment: every one ends exactly
// once with a status that its fate allows, answers are those of an undisturbed run, and nothing
// leaks. The engines check their invariants after every step.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::engine_soak_test {
namespace {

using absl::StatusCode;

constexpr int32_t kVocabSize = 288;
constexpr int kRequests = 300;

// Fresh every time, printed, and given back by TANDEM_SEED.
uint64_t Seed() {
  const char* const given = std::getenv("TANDEM_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

class EngineSoakTest : public testing::Test {
 protected:
  EngineSoakTest() {
    std::printf("TANDEM_SEED=%llu\n", static_cast<unsigned long long>(seed_));
    RecordProperty("seed", std::to_string(seed_));
  }

  int32_t Draw(int32_t min, int32_t max) {
    return std::uniform_int_distribution<int32_t>(min, max)(random_);
  }
  bool OneIn(int32_t n) { return Draw(1, n) == 1; }

  // Of one of the latest requests, up to `id`, which is likely to be under way still.
  size_t RecentIndex(uint64_t id) {
    const auto newest = static_cast<int32_t>(id) - 1;
    return static_cast<size_t>(Draw(std::max(0, newest - 7), newest));
  }

  // Half of the time with a host tier to swap to, and another policy.
  TestEngineSetup Crowded() {
    return {.num_blocks = Draw(48, 72),
            .block_tokens = 8,
            .scheduler = {.max_step_tokens = 48,
                          .max_prefill_chunk = 16,
                          .max_sequences = 8,
                          .policy = OneIn(2) ? SchedulingPolicyKind::kDeadline
                                             : SchedulingPolicyKind::kFair},
            .host_bytes = OneIn(2) ? 1 << 20 : 0};
  }

  EngineRequest RandomRequest(uint64_t id) {
    std::vector<int32_t> prompt = RandomPrompt(id, Draw(1, 90), kVocabSize);
    if (OneIn(2)) {
      const std::vector<int32_t> shared = RandomPrompt(Draw(1, 3), Draw(1, 60), kVocabSize);
      std::copy_n(shared.begin(), std::min(shared.size(), prompt.size()), prompt.begin());
    }
    EngineRequest request = Greedy(id, std::move(prompt), Draw(1, 40));
    request.sampling.temperature = OneIn(3) ? 0.0f : 0.9f;
    request.sampling.seed = id;
    if (OneIn(4)) request.sampling.repetition_penalty = 1.2f;
    if (OneIn(5)) request.priority = Draw(0, 3);
    if (OneIn(8)) {
      request.deadline =
          std::chrono::steady_clock::now() + std::chrono::microseconds(Draw(0, 20000));
    }
    if (OneIn(3)) request.stop_token_ids = {Draw(0, kVocabSize - 1), Draw(0, kVocabSize - 1)};
    std::sort(request.stop_token_ids.begin(), request.stop_token_ids.end());
    if (OneIn(3)) request.n = Draw(1, 4);
    if (OneIn(6)) {
      request.beams = BeamParams{.width = Draw(std::max(2, request.n), 4)};
      request.sampling = {};
    }
    // Policies whose choice depends neither on chunks nor on the batch.
    if (OneIn(4)) {
      request.eviction = {
          .policy = OneIn(2) ? TokenEvictionPolicy::kRandom : TokenEvictionPolicy::kStreamingLlm,
          .ratio = OneIn(2) ? 2.0 : 5.0,
          .sink_tokens = 2,
          .recent_tokens = 6,
          .span_tokens = OneIn(2) ? 1 : 4};
    }
    if (OneIn(2)) request.tenant = OneIn(2) ? "red" : "blue";
    if (OneIn(4)) request.cache_salt = request.tenant;
    return request;
  }

  // What came is the answer when nothing disturbs it, or its beginning when it was ended early. A
  // sequence that evicted KV and was computed again gives another answer, and so does one that kept
  // all KV because the pool is too small to evict it.
  template <typename Run>
  void ExpectAnswer(const Run& run, const absl::Status& status, const FinishInfo& finish) {
    EngineRequest request = run.request;
    const auto prompt = static_cast<int32_t>(request.prompt.size());
    const bool evicts = StoredTokens(prompt, request.eviction) < prompt;
    if (evicts && (finish.preemptions > 0 || finish.evicted_tokens == 0)) return;
    request.deadline = kNoDeadline;
    Recording undisturbed;
    reference_->Submit(request, undisturbed.NewSink());
    EXPECT_TRUE(undisturbed.AwaitFinish().status.ok());
    for (int32_t choice = 0; choice < request.n; ++choice) {
      const std::vector<int32_t> whole = undisturbed.token_ids(choice);
      const std::vector<int32_t> ids = run.token_ids(choice);
      ASSERT_LE(ids.size(), whole.size());
      EXPECT_TRUE(!status.ok() || run.ended_choice == choice || ids.size() == whole.size())
          << "cut short and called a success";
      for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], whole[i]);
    }
  }

  static void ExpectOneOf(const absl::Status& status, const std::vector<StatusCode>& codes) {
    for (StatusCode code : codes) {
      if (status.code() == code) return;
    }
    ADD_FAILURE() << status;
  }

  // The mixture was one: most went through, some did not.
  void Count(const absl::Status& status) { ++(status.ok() ? succeeded_ : failed_); }
  void ExpectAMixture() const {
    EXPECT_GT(succeeded_, kRequests / 4);
    EXPECT_GT(failed_, 0);
  }

  const uint64_t seed_ = Seed();
  int succeeded_ = 0;
  int failed_ = 0;
  std::mt19937_64 random_{seed_};
  TestEngine reference_{TestEngineSetup{}};
};

struct UnifiedRun {
  EngineRequest request;
  bool cancelled = false;
  int32_t ended_choice = -1;
  Recording recording;

  std::vector<int32_t> token_ids(int32_t choice) const { return recording.token_ids(choice); }
};

TEST_F(EngineSoakTest, Unified) {
  std::vector<std::unique_ptr<UnifiedRun>> runs;
  TestEngine engine(Crowded());
  for (uint64_t id = 1; id <= kRequests; ++id) {
    UnifiedRun& run = *runs.emplace_back(std::make_unique<UnifiedRun>());
    run.request = RandomRequest(id);
    engine->Submit(run.request, run.recording.NewSink());
    if (OneIn(3)) {
      UnifiedRun& victim = *runs[RecentIndex(id)];
      if (OneIn(2)) victim.recording.AwaitTokens(static_cast<size_t>(Draw(1, 5)));
      engine->Cancel(victim.request.id, absl::OkStatus());
      victim.cancelled = true;
    }
    if (OneIn(5)) {
      UnifiedRun& shortened = *runs[RecentIndex(id)];
      if (shortened.ended_choice >= 0 || shortened.request.beams) continue;
      shortened.ended_choice = Draw(0, shortened.request.n - 1);
      shortened.recording.AwaitTokens(1);
      engine->EndChoice(shortened.request.id, shortened.ended_choice);
    }
  }
  for (const auto& run : runs) {
    const FinishInfo finish = run->recording.AwaitFinish();
    const absl::Status& status = finish.status;
    std::vector<StatusCode> allowed = {StatusCode::kOk};
    if (run->cancelled) allowed.push_back(StatusCode::kCancelled);
    if (run->request.deadline != kNoDeadline) allowed.push_back(StatusCode::kDeadlineExceeded);
    ExpectOneOf(status, allowed);
    Count(status);
    EXPECT_EQ(run->recording.num_finishes(), 1);
    ExpectAnswer(*run, status, finish);
  }
  EXPECT_TRUE(engine.AtRest());
  ExpectAMixture();
}

class DisaggregatedSoakTest : public EngineSoakTest, public testing::WithParamInterface<Wire> {};

TEST_P(DisaggregatedSoakTest, EndsAndLeaksNothing) {
  HandoffPair pair(Crowded(), GetParam());
  std::vector<std::pair<Disaggregated*, bool>> runs;  // whether it was disturbed
  size_t continued = 0;
  const auto continue_next = [&] { pair.Continue(*runs[continued++].first); };
  // A random request of this id; its deadline may have passed before it could ask for room.
  const auto start = [&](uint64_t id) {
    EngineRequest request = RandomRequest(id);
    std::vector<StatusCode> refusals = {StatusCode::kCancelled};
    if (request.deadline != kNoDeadline) refusals.push_back(StatusCode::kDeadlineExceeded);
    auto run = pair.StartIfThereIsRoom(std::move(request));
    if (!run.ok()) ExpectOneOf(run.status(), refusals);
    return run;
  };
  for (uint64_t id = 1; id <= kRequests; ++id) {
    auto run = start(id);
    while (!run.ok()) {  // mostly for want of room: let one go on, which makes some
      if (HasFailure()) return;
      if (continued < runs.size()) continue_next();
      run = start(id);
    }
    runs.emplace_back(*run, false);
    if (!OneIn(4)) continue;
    auto& [victim, disturbed] = runs[RecentIndex(id)];
    disturbed = true;
    const RequestId victim_id = victim->request.id;
    if (OneIn(3)) pair.decode()->Release(victim->reservation.id);
    if (OneIn(2)) pair.prefill()->Cancel(victim_id, absl::OkStatus());
    if (OneIn(2)) pair.decode()->Cancel(victim_id, absl::OkStatus());
  }
  while (continued < runs.size()) continue_next();

  for (const auto& [run, disturbed] : runs) {
    const absl::Status status = pair.AwaitEnd(*run);
    std::vector<StatusCode> allowed = {StatusCode::kOk};
    // Whoever ends it first may show to the other side as a reservation that is gone.
    const bool hurried = run->request.deadline != kNoDeadline;
    if (hurried) allowed.push_back(StatusCode::kDeadlineExceeded);
    if (disturbed) allowed.push_back(StatusCode::kCancelled);
    if (hurried || disturbed) allowed.push_back(StatusCode::kNotFound);
    ExpectOneOf(status, allowed);
    Count(status);
    EXPECT_EQ(run->prefill.num_finishes(), 1);
    EXPECT_EQ(run->decode.num_finishes(), run->claimed ? 1 : 0);
    ExpectAnswer(*run, status, run->claimed ? run->decode.AwaitFinish() : FinishInfo{});
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.decode().AtRest());
  EXPECT_TRUE(pair.prefill().AtRest());
  ExpectAMixture();
}

INSTANTIATE_TEST_SUITE_P(Wires, DisaggregatedSoakTest, testing::Values(Wire::kLoopback, Wire::kTcp),
                         [](const testing::TestParamInfo<Wire>& info) {
                           return std::string(info.param == Wire::kTcp ? "Tcp" : "Loopback");
                         });

}  // namespace
}  // namespace tandem::engine_soak_test
