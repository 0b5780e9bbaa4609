// What a worker says on its admin port, by what it knows of itself.

#include "server/assembly/worker_pages.h"

#include <atomic>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/admin/exposition.h"

namespace tandem::worker_pages_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class WorkerPagesTest : public testing::Test {
 protected:
  // The names of the checks that fail.
  static std::vector<std::string> Failing(const HealthReport& report) {
    std::vector<std::string> names;
    for (const HealthCheck& check : report.checks) {
      if (!check.problem.empty()) names.push_back(check.name);
    }
    return names;
  }
  // Waits until these alone fail.
  void AwaitFailing(const std::vector<std::string>& names) {
    while (Failing(pages_.ready()) != names) std::this_thread::yield();
  }
  std::vector<Pulse> Pulses() {
    if (engine_moves_) ++engine_;
    if (steps_end_) ++steps_;
    return {{.name = "engine", .count = engine_},
            {.name = "step", .count = steps_, .patience = milliseconds(200)}};
  }

  std::atomic<bool> engine_moves_ = true;
  std::atomic<bool> steps_end_ = true;
  uint64_t engine_ = 0;  // these two are the watchdog's thread's
  uint64_t steps_ = 0;
  v1::WorkerLoad load_;
  std::atomic<bool> draining_ = false;
  Watchdog watchdog_{{.patience = milliseconds(400), .interval = milliseconds(2)},
                     [this] { return Pulses(); },
                     [](const std::string&) {}};
  AdminPages Pages(const ProcessTracing& tracing) {
    return WorkerPages({.name = "prefill-0",
                        .role = "prefill",
                        .model = "sample",
                        .load = [this] { return load_; },
                        .peers = [] { return std::set<std::string>{"decode-0"}; },
                        .draining = [this] { return draining_.load(); },
                        .tracing = tracing,
                        .watchdog = watchdog_});
  }
  const ProcessTracing untraced_;
  const AdminPages pages_ = Pages(untraced_);
};

TEST_F(WorkerPagesTest, WithoutStepsItIsNotReadyButLives) {
  AwaitFailing({});
  steps_end_ = false;
  AwaitFailing({"step"});
  EXPECT_THAT(Failing(pages_.live()), IsEmpty()) << "its thread moves";
  steps_end_ = true;
  AwaitFailing({});
}

TEST_F(WorkerPagesTest, WithAThreadThatHangsItNeitherLivesNorIsReady) {
  AwaitFailing({});
  engine_moves_ = false;
  AwaitFailing({"engine"});
  EXPECT_THAT(Failing(pages_.live()), ElementsAre("engine"));
}

TEST_F(WorkerPagesTest, ItIsReadyOnlyWithItsWeightsAndRoomAndWhileItDoesNotDrain) {
  AwaitFailing({});
  load_.set_starting(true);
  EXPECT_THAT(Failing(pages_.ready()), ElementsAre("weights"));
  load_.set_starting(false);
  load_.mutable_connections()->set_full(true);
  EXPECT_THAT(Failing(pages_.ready()), ElementsAre("connections"));
  draining_ = true;
  EXPECT_THAT(Failing(pages_.ready()), ElementsAre("draining", "connections"));
  EXPECT_THAT(Failing(pages_.live()), IsEmpty()) << "it must not be restarted";
}

TEST_F(WorkerPagesTest, LinksAreThoseToPeersWithAName) {
  for (const char* peer : {"decode-0", "tcp:127.0.0.1:7001"}) {
    v1::LinkStatus& link = *load_.add_links();
    link.set_peer(peer);
    link.set_transport("tcp");
  }
  const std::string page = Expose(pages_.metrics(), ExpositionFormat::kText);
  EXPECT_THAT(page, HasSubstr("worker=\"prefill-0\",peer=\"decode-0\",transport=\"tcp\""));
  EXPECT_THAT(page, Not(HasSubstr("7001")));
  EXPECT_THAT(page, HasSubstr("vllm:num_requests_running{model_name=\"sample\"} 0\n"));
}

TEST_F(WorkerPagesTest, SpansAreCountedWhereTheyGoSomewhere) {
  EXPECT_THAT(Expose(pages_.metrics(), ExpositionFormat::kText), Not(HasSubstr("tandem_trace")));
  const auto traced = ProcessTracing::Open({.file = "/dev/null"}, {.role = "prefill"});
  ASSERT_TRUE(traced.ok()) << traced.status();
  const std::string page = Expose(Pages(*traced).metrics(), ExpositionFormat::kText);
  EXPECT_THAT(page, HasSubstr("tandem_trace_spans_exported_total 0\n"));
  EXPECT_THAT(page, HasSubstr("tandem_trace_spans_dropped_total{why=\"not_taken\"} 0\n"));
}

}  // namespace
}  // namespace tandem::worker_pages_test
