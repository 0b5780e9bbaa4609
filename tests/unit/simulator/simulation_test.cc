#include "bench/simulator/simulation.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/simulated_fleet.h"

namespace tandem::simulator::simulation_test {
namespace {

constexpr Duration kHop = std::chrono::microseconds(100);

double Ms(Duration duration) { return ToMilliseconds(duration); }

TEST(SimulationTest, ALoneUnifiedRequestTakesTheTimesOfTheModel) {
  const loadgen::Schedule schedule = ScheduleOf({.requests = 1, .input = 1000, .output = 3});
  const SimulationResult result = RunSimulation({.fleet = Unified(1)}, schedule);
  const StepModel steps = TestModel()->steps;
  const double prefill =
      steps.Step({.prefill_tokens = 1000, .prefill_pairs = CausalPairs(0, 1000)}).count();
  const auto decode = [&](int64_t context) {
    return steps.Step({.decode_sequences = 1, .decode_context = context}).count();
  };
  const loadgen::RequestLatency latency = LatencyOf(result.run.records[0]);
  EXPECT_NEAR(*latency.ttft, prefill + 4 * Ms(kHop), 1e-4);
  EXPECT_NEAR(latency.e2e - *latency.ttft, decode(1001) + decode(1002), 1e-4);
  EXPECT_EQ(result.run.records[0].end.route, "unified");
  EXPECT_EQ(result.run.records[0].end.output_tokens, 3);
}

TEST(SimulationTest, ALoneDisaggregatedRequestReservesPrefillsMovesItsKvAndDecodes) {
  const loadgen::Schedule schedule = ScheduleOf({.requests = 1, .input = 1000, .output = 3});
  const SimulationResult result = RunSimulation({.fleet = Pairs(1, 1)}, schedule);
  const std::shared_ptr<const WorkerModel> model = TestModel();
  const double prefill =
      model->steps.Step({.prefill_tokens = 1000, .prefill_pairs = CausalPairs(0, 1000)}).count();
  const ModelTime transfer = model->link->Transfer(1000 * model->layout.BytesPerToken(),
                                                   int64_t{model->layout.BlocksFor(1000)} * 32, 1);
  const double exposed = ExposedTransfer(transfer, ModelTime(prefill), 32).count();
  const auto decode = [&](int64_t context) {
    return model->steps.Step({.decode_sequences = 1, .decode_context = context}).count();
  };
  const loadgen::RequestLatency latency = LatencyOf(result.run.records[0]);
  // To the router, to the decode worker and back, to the prefill worker and back, to the client.
  EXPECT_NEAR(*latency.ttft, prefill + 6 * Ms(kHop), 1e-4);
  // The first token and the decode request travel while the KV does.
  EXPECT_NEAR(latency.e2e - *latency.ttft,
              std::max(exposed, 2 * Ms(kHop)) + decode(1001) + decode(1002), 1e-3);
  EXPECT_EQ(result.run.records[0].end.route, "disaggregated");
  EXPECT_EQ(OutcomeOf(result, "prefill-0").stats.handoff_counts.sent, 1U);
  EXPECT_EQ(OutcomeOf(result, "decode-0").stats.handoff_counts.received, 1U);
}

TEST(SimulationTest, AWaitForTheEndOfAStepIsQueueing) {
  loadgen::Schedule schedule = ScheduleOf({.requests = 2, .input = 1000, .output = 1});
  constexpr Duration kLater = std::chrono::milliseconds(20);  // in the midst of the first prefill
  schedule.requests[1].at = schedule.requests[0].at + kLater;
  const SimulationResult result = RunSimulation({.fleet = Unified(1)}, schedule);
  const double prefill =
      TestModel()
          ->steps.Step({.prefill_tokens = 1000, .prefill_pairs = CausalPairs(0, 1000)})
          .count();
  EXPECT_NEAR(result.run.records[0].end.stages->queue, 0, 1e-3);
  EXPECT_NEAR(result.run.records[1].end.stages->queue, prefill - Ms(kLater), 1e-3);
}

TEST(SimulationTest, EveryRequestEndsWholeAndWorkersKeepNothing) {
  for (const auto& fleet : {Unified(2), Pairs(2, 2)}) {
    const SimulationResult result =
        RunSimulation({.fleet = fleet}, ScheduleOf({.requests = 300, .rate = 20}));
    EXPECT_EQ(SummaryOf(result).counts.complete, 300);
    for (const WorkerOutcome& worker : result.workers) {
      EXPECT_EQ(worker.stats.scheduler.running, 0) << worker.name;
      EXPECT_EQ(worker.stats.reservations, 0) << worker.name;
      EXPECT_EQ(worker.stats.kv.free_blocks + worker.stats.kv.idle_blocks,
                worker.stats.kv.total_blocks)
          << worker.name;
    }
    EXPECT_EQ(result.router.requests_in_flight(), 0);
  }
}

TEST(SimulationTest, EqualSeedsGiveEqualEventsAndOtherSeedsOthers) {
  const loadgen::Schedule schedule = ScheduleOf({.requests = 200});
  SimulationOptions options{.fleet = Pairs(2, 2), .seed = 3};
  const SimulationResult first = RunSimulation(options, schedule);
  const SimulationResult second = RunSimulation(options, schedule);
  EXPECT_EQ(first.digest, second.digest);
  EXPECT_EQ(first.events, second.events);
  const SimulationResult other = RunSimulation(options, ScheduleOf({.requests = 200, .seed = 2}));
  EXPECT_NE(first.digest, other.digest);
}

TEST(SimulationTest, GroupedTokenEventsChangeNoTime) {
  const loadgen::Schedule schedule = ScheduleOf({.requests = 200, .rate = 15, .output = 100});
  for (const auto& fleet : {Unified(2), Pairs(1, 2)}) {
    SimulationOptions options{.fleet = fleet};
    const SimulationResult each = RunSimulation(options, schedule);
    options.network.token_events = TokenEvents::kGrouped;
    const SimulationResult grouped = RunSimulation(options, schedule);
    EXPECT_EQ(each.digest, grouped.digest);
    for (size_t i = 0; i < schedule.requests.size(); ++i) {
      EXPECT_EQ(loadgen::TokenGaps(each.run.records[i]),
                loadgen::TokenGaps(grouped.run.records[i]));
    }
  }
}

TEST(SimulationTest, FewerKeptArrivalsKeepFirstAndLastToken) {
  const loadgen::Schedule schedule = ScheduleOf({.requests = 50, .output = 40});
  SimulationOptions options{.fleet = Unified(1)};
  const SimulationResult all = RunSimulation(options, schedule);
  options.most_arrivals = 500;
  const SimulationResult few = RunSimulation(options, schedule);
  EXPECT_TRUE(all.has_each_token);
  EXPECT_FALSE(few.has_each_token);
  for (size_t i = 0; i < schedule.requests.size(); ++i) {
    const loadgen::RequestRecord& record = few.run.records[i];
    EXPECT_LE(record.chunks.size(), 11U);
    EXPECT_EQ(loadgen::OutputTokens(record), 40);
    EXPECT_EQ(LatencyOf(record).ttft, LatencyOf(all.run.records[i]).ttft);
    EXPECT_EQ(LatencyOf(record).tpot, LatencyOf(all.run.records[i]).tpot);
  }
}

TEST(SimulationTest, ASharedPrefixIsComputedOncePerWorker) {
  const TestLoad load{.requests = 50, .rate = 5, .input = 100, .output = 5, .prefix = 1600};
  const SimulationResult with = RunSimulation({.fleet = Unified(1)}, ScheduleOf(load));
  SimulationOptions off{.fleet = Unified(1)};
  off.limits.prefix_caching = PrefixCaching::kOff;
  const SimulationResult without = RunSimulation(off, ScheduleOf(load));
  EXPECT_EQ(OutcomeOf(with, "unified-0").usage.prompt_tokens, 1700U + 49 * 100);
  EXPECT_EQ(OutcomeOf(without, "unified-0").usage.prompt_tokens, 50 * 1700U);
  EXPECT_EQ(OutcomeOf(with, "unified-0").stats.kv.hit_tokens, 49 * 1600);
  EXPECT_EQ(with.run.records[49].end.cached_tokens, 1600);
}

TEST(SimulationTest, ADecodeWorkerIsNotSentTheKvThatItHasCached) {
  const TestLoad load{.requests = 20, .rate = 2, .input = 100, .output = 5, .prefix = 1600};
  const SimulationResult result = RunSimulation({.fleet = Pairs(1, 1)}, ScheduleOf(load));
  const auto bytes = static_cast<uint64_t>(TestModel()->layout.BytesPerToken());
  EXPECT_EQ(OutcomeOf(result, "prefill-0").stats.kv_bytes_sent, bytes * (1700 + 19 * 100));
}

TEST(SimulationTest, TheRouterLearnsWhatWorkersHaveCachedAndSendsPromptsThere) {
  // Two prefixes and two workers: each prefix is computed once where the router looks for it.
  loadgen::WorkloadOptions workload;
  workload.num_prompts = 100;
  workload.input = {.low = 50, .high = 50};
  workload.output = {.low = 5, .high = 5};
  workload.prefix_tokens = 1600;
  workload.num_prefixes = 2;
  const auto schedule = loadgen::MakeSchedule(workload, loadgen::ArrivalOptions{.rate = 4}, 1);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const auto computed = [&schedule](const std::string& policy) {
    const SimulationResult result =
        RunSimulation({.fleet = Unified(2), .policy = policy}, *schedule);
    uint64_t tokens = 0;
    for (const WorkerOutcome& worker : result.workers) tokens += worker.usage.prompt_tokens;
    return tokens;
  };
  EXPECT_LT(computed("prefix-affinity"), computed("round-robin"));
}

TEST(SimulationTest, ASmallPoolPreemptsAndAllRequestsEndAllTheSame) {
  auto model = std::make_shared<WorkerModel>(*TestModel());
  model->kv_tokens = 2560;
  std::vector<WorkerConfig> fleet = Unified(1);
  fleet[0].model = model;
  const SimulationResult result = RunSimulation(
      {.fleet = fleet}, ScheduleOf({.requests = 60, .rate = 50, .input = 200, .output = 300}));
  EXPECT_EQ(SummaryOf(result).counts.complete, 60);
  const WorkerOutcome& worker = OutcomeOf(result, "unified-0");
  EXPECT_LE(worker.usage.peak_blocks, 160);
  EXPECT_EQ(worker.stats.kv.free_blocks + worker.stats.kv.idle_blocks, 160);
}

TEST(SimulationTest, AFullQueueRefusesWithTheRealAnswer) {
  SimulationOptions options{.fleet = Unified(1)};
  options.limits.scheduler.max_waiting = 4;
  options.limits.scheduler.max_sequences = 2;
  const SimulationResult result =
      RunSimulation(options, ScheduleOf({.requests = 50, .rate = 1000, .output = 100}));
  const loadgen::Summary summary = SummaryOf(result);
  EXPECT_GT(summary.counts.failed, 0);
  EXPECT_GT(summary.counts.complete, 0);
  EXPECT_EQ(summary.counts.all(), 50);
}

TEST(SimulationTest, CancelledRequestsFreeTheirBlocks) {
  loadgen::Schedule schedule = ScheduleOf({.requests = 100, .output = 200});
  for (loadgen::ScheduledRequest& request : schedule.requests) {
    request.cancel_after = std::chrono::milliseconds(500);
  }
  for (const auto& fleet : {Unified(1), Pairs(1, 1)}) {
    const SimulationResult result = RunSimulation({.fleet = fleet}, schedule);
    EXPECT_EQ(SummaryOf(result).counts.cancelled, 100);
    EXPECT_EQ(result.router.requests_in_flight(), 0);
  }
}

TEST(SimulationTest, AClosedLoopKeepsItsConcurrency) {
  loadgen::Schedule schedule = ScheduleOf({.requests = 64});
  for (loadgen::ScheduledRequest& request : schedule.requests) request.at = Duration::zero();
  SimulationOptions options{.fleet = Unified(1)};
  options.run.max_concurrency = 8;
  options.run.closed_loop = true;
  const SimulationResult result = RunSimulation(options, schedule);
  EXPECT_EQ(result.run.peak_concurrency, 8);
  EXPECT_EQ(SummaryOf(result).counts.complete, 64);
}

TEST(SimulationTest, UnknownPoliciesAndLimitsAreRefused) {
  loadgen::RunCounts counts;
  const loadgen::Schedule schedule = ScheduleOf({.requests = 1});
  EXPECT_TRUE(absl::IsNotFound(
      Simulate({.fleet = Unified(1), .policy = "magic"}, schedule, counts).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Simulate({}, schedule, counts).status()));
  SimulationOptions options{.fleet = Unified(1)};
  options.limits.scheduler.max_sequences = -1;
  EXPECT_TRUE(absl::IsInvalidArgument(Simulate(options, schedule, counts).status()));
}

}  // namespace
}  // namespace tandem::simulator::simulation_test
