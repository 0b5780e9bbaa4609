// Workers are killed, stopped and shut down under requests: clients get the very same tokens.

#include <signal.h>

#include <functional>
#include <future>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_cluster.h"

namespace tandem::resume_test {
namespace {

using ::testing::HasSubstr;

constexpr char kPrompt[] = "It was a fine morning, and the ladies";
// So many that a worker still decodes when the client has its first 60 tokens, however late it reads.
constexpr int32_t kTokens = 900;

// Two workers of each role. Of two that are idle the first by name gets the first request; then
// they take turns.
class ResumeTest : public testing::Test {
 protected:
  v1::GenerateRequest RequestFor(v1::Route route, int32_t n) const {
    v1::GenerateRequest request = TextRequest(kPrompt, route, kTokens);
    request.set_n(n);
    v1::SamplingParams& sampling = *request.mutable_sampling();
    sampling.set_temperature(0.8f);
    sampling.set_seed(11);
    sampling.set_repetition_penalty(1.1f);
    sampling.set_logprobs(1);
    return request;
  }

  // Runs `request` and calls `act` when its `at`-th event comes.
  Outcome Disturb(const v1::GenerateRequest& request, int at, const std::function<void()>& act) {
    Outcome outcome;
    int events = 0;
    outcome.status = cluster_.client().Generate(request, std::chrono::minutes(1),
                                                [&](const v1::GenerateResponse& event) {
                                                  outcome.generation.Add(event);
                                                  if (++events == at) act();
                                                  return true;
                                                });
    return outcome;
  }
  std::future<Outcome> InBackground(const v1::GenerateRequest& request) {
    return std::async(std::launch::async,
                      [this, request] { return Ask(cluster_.client(), request); });
  }

  // The same request, when nobody disturbs it; where it ran does not matter (P2).
  void ExpectTheSame(const Outcome& outcome, const v1::GenerateRequest& request, int32_t resumes) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.generation.summary.usage().resumes(), resumes);
    v1::GenerateRequest undisturbed = request;
    undisturbed.set_route(v1::ROUTE_AUTO);
    const Outcome expected = Ask(cluster_.client(), undisturbed);
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    EXPECT_EQ(expected.generation.summary.usage().resumes(), 0);
    ASSERT_EQ(outcome.generation.choices.size(), static_cast<size_t>(request.n()));
    for (size_t i = 0; i < outcome.generation.choices.size(); ++i) {
      const Generation::Choice& is = outcome.generation.choices[i];
      const Generation::Choice& was = expected.generation.choices[i];
      EXPECT_EQ(is.token_ids, was.token_ids) << "choice " << i;
      EXPECT_EQ(is.text, was.text) << "choice " << i;
      EXPECT_EQ(is.finish.reason(), was.finish.reason());
      EXPECT_EQ(is.finish.cumulative_logprob(), was.finish.cumulative_logprob());
      ASSERT_EQ(is.logprobs.size(), was.logprobs.size());
    }
    cluster_.WaitUntilIdle();
  }

  void AwaitGone(const std::string& worker) {
    cluster_.WaitFor("its lease lapsed", [&worker](const v1::GetStatusResponse& status) {
      return FindWorker(status, worker) == nullptr;
    });
  }

  v1::ResumeUse Resumes() {
    const auto status = cluster_.client().GetStatus(std::chrono::minutes(1));
    return status.ok() ? status->resumes() : v1::ResumeUse();
  }

  TestCluster cluster_{{.prefill = 2, .decode = 2, .unified = 2}};
};

TEST_F(ResumeTest, DecodeWorkerKilledWhileItDecodes) {
  for (const int32_t n : {1, 4}) {
    SCOPED_TRACE(n);
    const v1::GenerateRequest request = RequestFor(v1::ROUTE_DISAGGREGATED, n);
    const Outcome outcome = Disturb(request, 20 * n, [this] { cluster_.Kill("decode-0"); });
    ExpectTheSame(outcome, request, 1);
    for (const Generation::Choice& choice : outcome.generation.choices) {
      EXPECT_EQ(choice.finish.decode_worker(), "decode-1");
    }
    cluster_.Start("decode-0");
  }
  EXPECT_EQ(Resumes().lost(), 2u);
  EXPECT_GT(Resumes().max_ms(), 0);
}

TEST_F(ResumeTest, ThePrefillWorkerThatHasThePromptSendsItAgain) {
  cluster_.Kill("prefill-0");  // so that the first attempt takes the other one
  AwaitGone("prefill-0");
  v1::GenerateRequest request = RequestFor(v1::ROUTE_DISAGGREGATED, 1);
  for (int i = 0; i < 20; ++i) request.mutable_text()->append(kPrompt);
  const Outcome outcome = Disturb(request, 20, [this] {
    cluster_.Signal("decode-0", SIGSTOP);
    cluster_.Start("prefill-0");  // idle, and the first by name
    cluster_.Kill("decode-0");
  });
  ExpectTheSame(outcome, request, 1);
  EXPECT_EQ(outcome.generation.choices[0].finish.prefill_worker(), "prefill-1");
  const v1::Usage& usage = outcome.generation.summary.usage();
  EXPECT_GE(usage.cached_tokens(), usage.prompt_tokens() - 16) << "all but the last block of it";
}

// It would go on with tokens of another kind.
TEST(ResumeElsewhereTest, AWorkerThatComesBackWithAnotherKvTypeDoesNotGoOn) {
  TestCluster cluster({.prefill = 0, .decode = 0});
  int events = 0;
  Outcome outcome;
  outcome.status =
      cluster.client().Generate(TextRequest(kPrompt, v1::ROUTE_AUTO, kTokens),
                                std::chrono::minutes(1), [&](const v1::GenerateResponse& event) {
                                  outcome.generation.Add(event);
                                  if (++events != 20) return true;
                                  cluster.Kill("unified-0");
                                  cluster.Start("unified-0", {"--kv-dtype=f32"});
                                  return true;
                                });
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable) << outcome.status;
  const std::string said(outcome.status.message());
  EXPECT_THAT(said, HasSubstr("unified worker unified-0 has model"));
  EXPECT_THAT(said, HasSubstr("with KV of f32 on cpu, and the prompt was begun by model"));
  EXPECT_THAT(said, HasSubstr("with KV of bf16 on cpu"));
  // It serves what is new, with all blocks back.
  EXPECT_TRUE(Ask(cluster.client(), TextRequest(kPrompt, v1::ROUTE_AUTO, 4)).status.ok());
  cluster.WaitUntilIdle();
}

TEST_F(ResumeTest, UnifiedWorkerKilledWhileItDecodes) {
  for (const int32_t n : {1, 4}) {
    SCOPED_TRACE(n);
    const v1::GenerateRequest request = RequestFor(v1::ROUTE_UNIFIED, n);
    ExpectTheSame(Disturb(request, 20 * n, [this] { cluster_.Kill("unified-0"); }), request, 1);
    cluster_.Start("unified-0");
  }
}

TEST_F(ResumeTest, PrefillWorkerKilledBeforeTheFirstToken) {
  cluster_.Signal("prefill-0", SIGSTOP);  // stays in that state until killed
  const v1::GenerateRequest request = RequestFor(v1::ROUTE_DISAGGREGATED, 2);
  auto outcome = InBackground(request);
  cluster_.WaitFor("a reservation", [](const v1::GetStatusResponse& status) {
    return BlocksInUse(*FindWorker(status, "decode-0")) > 0;
  });
  cluster_.Kill("prefill-0");
  ExpectTheSame(outcome.get(), request, 1);
}

TEST_F(ResumeTest, PrefillWorkerKilledRightAfterTheFirstToken) {
  const v1::GenerateRequest request = RequestFor(v1::ROUTE_DISAGGREGATED, 1);
  const Outcome outcome = Disturb(request, 1, [this] { cluster_.Kill("prefill-0"); });
  // Whether the KV had arrived by then is a race.
  const int32_t resumes = outcome.generation.summary.usage().resumes();
  EXPECT_LE(resumes, 1);
  ExpectTheSame(outcome, request, resumes);
}

// The first request of a fresh cluster decodes at the worker that is the parameter.
class ResumeFirstTest : public ResumeTest, public ::testing::WithParamInterface<std::string> {
 protected:
  v1::GenerateRequest FirstRequest(int32_t n) const {
    return RequestFor(victim_ == "unified-0" ? v1::ROUTE_UNIFIED : v1::ROUTE_DISAGGREGATED, n);
  }

  const std::string victim_ = GetParam();
};

INSTANTIATE_TEST_SUITE_P(Roles, ResumeFirstTest, ::testing::Values("decode-0", "unified-0"),
                         [](const auto& victim) {
                           return victim.param.substr(0, victim.param.find('-'));
                         });

TEST_P(ResumeFirstTest, AWorkerThatHangsIsLostAndItsLateWordsAreNotHeard) {
  const v1::GenerateRequest request = FirstRequest(1);
  const Outcome outcome = Disturb(request, 20, [this] { cluster_.Signal(victim_, SIGSTOP); });
  cluster_.Signal(victim_, SIGCONT);
  cluster_.WaitFor("it registers again", [this](const v1::GetStatusResponse& status) {
    return FindWorker(status, victim_) != nullptr;
  });
  ExpectTheSame(outcome, request, 1);
}

TEST_F(ResumeTest, ARestartedWorkerTakesOver) {
  for (const char* other : {"decode-1", "unified-0", "unified-1"}) cluster_.Kill(other);
  cluster_.WaitFor("one is left",
                   [](const v1::GetStatusResponse& status) { return status.workers_size() == 3; });
  const v1::GenerateRequest request = RequestFor(v1::ROUTE_DISAGGREGATED, 1);
  std::promise<void> killed;
  std::future<Outcome> outcome = std::async(std::launch::async, [&] {
    return Disturb(request, 20, [&] {
      cluster_.Signal("decode-0", SIGKILL);
      killed.set_value();
    });
  });
  killed.get_future().get();
  cluster_.Kill("decode-0");
  cluster_.Start("decode-0");
  ExpectTheSame(outcome.get(), request, 1);
}

TEST_F(ResumeTest, AutoGoesOnByTheOtherRoute) {
  cluster_.Kill("unified-1");
  AwaitGone("unified-1");
  const v1::GenerateRequest request = RequestFor(v1::ROUTE_AUTO, 2);
  const Outcome outcome = Disturb(request, 20, [this] { cluster_.Kill("unified-0"); });
  ExpectTheSame(outcome, request, 1);
  EXPECT_EQ(outcome.generation.choices[0].finish.route(), v1::ROUTE_DISAGGREGATED);
}

TEST_F(ResumeTest, LossesInARow) {
  const v1::GenerateRequest request = RequestFor(v1::ROUTE_DISAGGREGATED, 1);
  Outcome outcome;
  int events = 0;
  outcome.status = cluster_.client().Generate(request, std::chrono::minutes(1),
                                              [&](const v1::GenerateResponse& event) {
                                                outcome.generation.Add(event);
                                                if (++events == 20) cluster_.Kill("decode-0");
                                                if (events == 40)
                                                  cluster_.Signal("prefill-0", SIGKILL);
                                                if (events == 60) {
                                                  cluster_.Kill("decode-1");
                                                  cluster_.Start("decode-0");
                                                }
                                                return true;
                                              });
  cluster_.Kill("prefill-0");  // waits for its end
  // The prefill worker's loss is seen by whoever asks it first, once its lease has lapsed by
  // nobody.
  const int32_t resumes = outcome.generation.summary.usage().resumes();
  EXPECT_GE(resumes, 2);
  ExpectTheSame(outcome, request, resumes);
}

TEST_P(ResumeFirstTest, AWorkerThatIsShutDownHandsItsStreamsOn) {
  const v1::GenerateRequest request = FirstRequest(2);
  const Outcome outcome = Disturb(request, 20, [this] {
    EXPECT_EQ(cluster_.Terminate(victim_), 0) << "within its time to drain";
  });
  EXPECT_EQ(Resumes().migrated(), 1u);
  EXPECT_EQ(Resumes().lost(), 0u);
  EXPECT_NE(outcome.generation.choices[0].finish.decode_worker(), victim_);
  ExpectTheSame(outcome, request, 1);
}

TEST_F(ResumeTest, AWorkerThatIsShutDownEndsWhatNobodyElseCanTake) {
  cluster_.Kill("unified-1");
  AwaitGone("unified-1");
  const v1::GenerateRequest request = RequestFor(v1::ROUTE_UNIFIED, 2);
  const Outcome outcome = Disturb(request, 20, [this] { cluster_.Signal("unified-0", SIGTERM); });
  EXPECT_EQ(cluster_.AwaitExit("unified-0"), 0);
  ExpectTheSame(outcome, request, 0);
}

}  // namespace
}  // namespace tandem::resume_test
