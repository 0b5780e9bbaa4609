// kill -9 of a worker, or of the router, at different points of a request that may not go on
// elsewhere (resume_test has those that may): it ends once, and nothing leaks.

#include <signal.h>

#include <atomic>
#include <future>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_cluster.h"

namespace tandem::worker_loss_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPrompt[] = "It was a fine morning, and the ladies";
constexpr int32_t kLong = 1500;

class WorkerLossTest : public testing::Test {
 protected:
  // A request that runs beside what happens.
  std::future<Outcome> InBackground(v1::Route route, int32_t max_tokens) {
    return std::async(std::launch::async, [this, route, max_tokens] {
      return Ask(cluster_.client(), TextRequest(kPrompt, route, max_tokens));
    });
  }

  // Runs a disaggregated request and calls `act` when its `at`-th event comes.
  Outcome RunAndAct(int at, const std::function<void()>& act) {
    Outcome outcome;
    int events = 0;
    outcome.status =
        cluster_.client().Generate(TextRequest(kPrompt, v1::ROUTE_DISAGGREGATED, kLong),
                                   Client::kNoTimeout, [&](const v1::GenerateResponse& event) {
                                     outcome.generation.Add(event);
                                     if (++events == at) act();
                                     return true;
                                   });
    return outcome;
  }

  void WaitForReservation() {
    cluster_.WaitFor("a reservation", [](const v1::GetStatusResponse& status) {
      const v1::WorkerStatus* decode = FindWorker(status, "decode-0");
      return decode != nullptr && BlocksInUse(*decode) > 0;
    });
  }

  void ExpectLost(const Outcome& outcome, const std::string& worker) {
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable) << outcome.status;
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr(worker));
    EXPECT_THAT(std::string(outcome.status.message()), Not(HasSubstr("no router")));
  }

  // The worker is back, nothing leaked, and the route works with the same answer as ever.
  void ExpectWholeAgain(const std::string& restarted) {
    cluster_.Start(restarted);
    cluster_.WaitUntilIdle();
    const Outcome split = Ask(cluster_.client(), TextRequest(kPrompt, v1::ROUTE_DISAGGREGATED, 20));
    const Outcome unified = Ask(cluster_.client(), TextRequest(kPrompt, v1::ROUTE_UNIFIED, 20));
    ASSERT_TRUE(split.status.ok()) << split.status;
    ASSERT_TRUE(unified.status.ok()) << unified.status;
    EXPECT_EQ(split.generation.choices[0].token_ids, unified.generation.choices[0].token_ids);
    cluster_.WaitUntilIdle();
  }

  TestCluster cluster_{{.router_flags = {"--max-resumes=0"}}};
};

TEST_F(WorkerLossTest, DecodeWorkerKilledWhileItDecodes) {
  auto other = InBackground(v1::ROUTE_UNIFIED, kLong);
  const Outcome outcome = RunAndAct(20, [this] { cluster_.Kill("decode-0"); });
  ExpectLost(outcome, "decode worker decode-0");
  const Outcome unharmed = other.get();
  ASSERT_TRUE(unharmed.status.ok()) << unharmed.status;
  EXPECT_EQ(unharmed.generation.choices[0].token_ids.size(), size_t{kLong});
  ExpectWholeAgain("decode-0");
}

TEST_F(WorkerLossTest, PrefillWorkerKilledWhileItPrefills) {
  cluster_.Signal("prefill-0", SIGSTOP);  // stays in that state until killed
  auto request = InBackground(v1::ROUTE_DISAGGREGATED, 20);
  WaitForReservation();
  cluster_.Kill("prefill-0");
  ExpectLost(request.get(), "prefill worker prefill-0");
  ExpectWholeAgain("prefill-0");
}

TEST_F(WorkerLossTest, DecodeWorkerKilledAfterItReserved) {
  cluster_.Signal("prefill-0", SIGSTOP);
  auto request = InBackground(v1::ROUTE_DISAGGREGATED, kLong);
  WaitForReservation();
  cluster_.Kill("decode-0");
  cluster_.Signal("prefill-0", SIGCONT);
  const Outcome outcome = request.get();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable) << outcome.status;
  ExpectWholeAgain("decode-0");
}

TEST_F(WorkerLossTest, DecodeWorkerKilledWhileItIsAskedToReserve) {
  cluster_.Signal("decode-0", SIGSTOP);
  auto request = InBackground(v1::ROUTE_DISAGGREGATED, 20);
  cluster_.WaitFor("the request", [](const v1::GetStatusResponse& status) {
    return status.requests_in_flight() == 1;
  });
  cluster_.Kill("decode-0");
  ExpectLost(request.get(), "decode worker decode-0");
  ExpectWholeAgain("decode-0");
}

TEST_F(WorkerLossTest, PrefillWorkerKilledRightAfterTheFirstToken) {
  auto other = InBackground(v1::ROUTE_UNIFIED, 500);
  const Outcome outcome = RunAndAct(1, [this] { cluster_.Kill("prefill-0"); });
  // Whether the KV had arrived by then is a race; half an answer called a success is never right.
  if (outcome.status.ok()) {
    EXPECT_EQ(outcome.generation.choices[0].token_ids.size(), size_t{kLong});
  } else {
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable) << outcome.status;
  }
  const Outcome unharmed = other.get();
  ASSERT_TRUE(unharmed.status.ok()) << unharmed.status;
  ExpectWholeAgain("prefill-0");
}

TEST_F(WorkerLossTest, KilledAtAnyPointWithOthersInFlight) {
  for (const std::string& victim : {std::string("prefill-0"), std::string("decode-0")}) {
    for (const int at : {1, 6, 20, 80}) {
      SCOPED_TRACE(victim + " killed at event " + std::to_string(at));
      std::atomic<int> events = 0;
      std::vector<std::future<Outcome>> outcomes;
      for (int i = 0; i < 6; ++i) {
        const v1::Route route = i % 3 == 0 ? v1::ROUTE_UNIFIED : v1::ROUTE_DISAGGREGATED;
        outcomes.push_back(std::async(std::launch::async, [this, route, at, &victim, &events] {
          Outcome outcome;
          outcome.status =
              cluster_.client().Generate(TextRequest(kPrompt, route, 60), std::chrono::minutes(1),
                                         [&](const v1::GenerateResponse& event) {
                                           outcome.generation.Add(event);
                                           if (++events == at) cluster_.Kill(victim);
                                           return true;
                                         });
          return outcome;
        }));
      }
      for (size_t i = 0; i < outcomes.size(); ++i) {
        const Outcome outcome = outcomes[i].get();
        EXPECT_TRUE(outcome.status.ok() || (i % 3 != 0 && absl::IsUnavailable(outcome.status)))
            << outcome.status;
        if (!outcome.status.ok()) continue;
        EXPECT_EQ(outcome.generation.choices[0].token_ids.size(), 60u);
      }
      ExpectWholeAgain(victim);
    }
  }
}

TEST_F(WorkerLossTest, ARequestWithSeveralChoicesEndsWithOneStatus) {
  for (const std::string& victim : {std::string("decode-0"), std::string("unified-0")}) {
    SCOPED_TRACE(victim);
    const v1::Route route = victim == "unified-0" ? v1::ROUTE_UNIFIED : v1::ROUTE_DISAGGREGATED;
    v1::GenerateRequest request = TextRequest(kPrompt, route, kLong);
    request.set_n(4);
    Outcome outcome;
    int events = 0;
    outcome.status = cluster_.client().Generate(request, Client::kNoTimeout,
                                                [&](const v1::GenerateResponse& event) {
                                                  outcome.generation.Add(event);
                                                  if (++events == 20) cluster_.Kill(victim);
                                                  return true;
                                                });
    ExpectLost(outcome, "worker " + victim);
    EXPECT_EQ(outcome.generation.choices.size(), 4u);
    EXPECT_FALSE(outcome.generation.summary.has_usage()) << "half an answer is no answer";
    ExpectWholeAgain(victim);
  }
}

TEST_F(WorkerLossTest, AHungWorkerLosesItsLeaseAndItsRequests) {
  cluster_.Signal("unified-0", SIGSTOP);
  const Outcome outcome = Ask(cluster_.client(), TextRequest(kPrompt, v1::ROUTE_UNIFIED, 4));
  ExpectLost(outcome, "unified worker unified-0");
  cluster_.Signal("unified-0", SIGCONT);  // comes back by itself
  cluster_.WaitFor("it registers again", [](const v1::GetStatusResponse& status) {
    return FindWorker(status, "unified-0") != nullptr;
  });
  cluster_.WaitUntilIdle();
  EXPECT_EQ(Ask(cluster_.client(), TextRequest(kPrompt, v1::ROUTE_UNIFIED, 4)).status,
            absl::OkStatus());
}

// The connections to the frozen one stand: nothing but the name says that it is lost.
TEST(TakenNameTest, AnotherProcessGoesOnForOneThatIsFrozen) {
  TestCluster cluster({.prefill = 0, .decode = 0});
  const v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_UNIFIED, kLong);
  Outcome outcome;
  int events = 0;
  outcome.status = cluster.client().Generate(request, std::chrono::minutes(1),
                                             [&](const v1::GenerateResponse& event) {
                                               outcome.generation.Add(event);
                                               if (++events != 20) return true;
                                               cluster.Signal("unified-0", SIGSTOP);
                                               cluster.StartBeside("unified-0");
                                               return true;
                                             });
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.generation.summary.usage().resumes(), 1);
  const auto status = cluster.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->resumes().causes_size(), 1);
  EXPECT_EQ(status->resumes().causes(0).cause(), "lease") << "not by the end of the connection";
  const auto belongs_to = [&cluster](const std::string& process) {
    return [pid = cluster.pid(process)](const v1::GetStatusResponse& now) {
      const v1::WorkerStatus* worker = FindWorker(now, "unified-0");
      return worker != nullptr && worker->pid() == pid;
    };
  };
  cluster.Signal("unified-0-before", SIGCONT);
  const Outcome undisturbed = Ask(cluster.client(), request);
  ASSERT_TRUE(undisturbed.status.ok()) << undisturbed.status;
  EXPECT_EQ(undisturbed.generation.choices[0].token_ids, outcome.generation.choices[0].token_ids);
  const auto after = cluster.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(belongs_to("unified-0")(*after)) << after->DebugString();
  // It is let in once the name is free, and has ended what it was doing.
  const auto let_in = belongs_to("unified-0-before");
  cluster.Kill("unified-0");
  cluster.WaitFor("the first is let in", let_in);
  cluster.WaitUntilIdle();
  EXPECT_TRUE(Ask(cluster.client(), TextRequest(kPrompt, v1::ROUTE_UNIFIED, 4)).status.ok());
  EXPECT_EQ(cluster.Terminate("unified-0-before"), 0);
}

// As a service manager does that starts the next one without waiting for the last.
TEST(TakenNameTest, AWorkerThatLeavesEndsWhatItHasThoughItsNameIsTaken) {
  TestCluster cluster({.prefill = 0, .decode = 0, .router_flags = {"--max-resumes=0"}});
  const v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_UNIFIED, kLong);
  Outcome outcome;
  int events = 0;
  outcome.status = cluster.client().Generate(
      request, std::chrono::minutes(1), [&](const v1::GenerateResponse& event) {
        outcome.generation.Add(event);
        if (++events != 20) return true;
        cluster.Signal("unified-0", SIGTERM);
        cluster.WaitFor("it leaves", [](const v1::GetStatusResponse& status) {
          return status.routes().empty();
        });
        cluster.StartBeside("unified-0");
        return true;
      });
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.generation.choices[0].token_ids.size(), size_t{kLong});
  EXPECT_EQ(cluster.AwaitExit("unified-0-before"), 0) << "within its time to drain";
  const auto status = cluster.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->resumes().lost(), 0u);
  cluster.WaitUntilIdle();
  EXPECT_TRUE(Ask(cluster.client(), TextRequest(kPrompt, v1::ROUTE_UNIFIED, 4)).status.ok());
}

TEST_F(WorkerLossTest, ADeadWorkerLeavesTheView) {
  cluster_.Kill("unified-0");
  cluster_.WaitFor("its lease lapsed", [](const v1::GetStatusResponse& status) {
    return FindWorker(status, "unified-0") == nullptr;
  });
  const Outcome outcome = Ask(cluster_.client(), TextRequest(kPrompt, v1::ROUTE_UNIFIED, 4));
  ExpectLost(outcome, "needs a unified worker");
}

TEST_F(WorkerLossTest, WorkersFindARouterThatCameBack) {
  cluster_.Kill("router");
  cluster_.Start("router");
  cluster_.WaitFor("all workers registered again",
                   [](const v1::GetStatusResponse& status) { return status.workers_size() == 3; });
  const Outcome outcome = Ask(cluster_.client(), TextRequest(kPrompt, v1::ROUTE_DISAGGREGATED, 20));
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  cluster_.WaitUntilIdle();
}

}  // namespace
}  // namespace tandem::worker_loss_test
