// The situations in which published routers and planners failed, each as a run of the simulator.
#include "bench/simulator/simulation.h"
#include "gtest/gtest.h"
#include "tests/support/simulated_fleet.h"

namespace tandem::simulator::scenarios_test {
namespace {

Disturbance At(double seconds, Disturbance::Kind kind, const std::string& worker,
               double factor = 1) {
  return {.kind = kind,
          .at = Duration(static_cast<int64_t>(seconds * 1e9)),
          .worker = worker,
          .factor = factor};
}

// The most tokens that one worker of a role sampled, and the fewest.
struct Spread {
  uint64_t most = 0;
  uint64_t fewest = 0;
};
Spread SpreadOfOutput(const SimulationResult& result, v1::WorkerRole role) {
  Spread spread{.fewest = UINT64_MAX};
  for (const WorkerOutcome& worker : result.workers) {
    if (worker.role != role) continue;
    spread.most = std::max(spread.most, worker.usage.output_tokens);
    spread.fewest = std::min(spread.fewest, worker.usage.output_tokens);
  }
  return spread;
}

// Forty prompts per second are more than one prefill worker computes, and less than four do. The
// burst must be seen when it arrives and not when its requests end.
TEST(ScenariosTest, ABurstOverTheCapacityOfOnePrefillWorkerIsSharedByAll) {
  const TestLoad burst{.requests = 200, .rate = 40, .input = 1500, .output = 50};
  const SimulationResult alone = RunSimulation({.fleet = Pairs(1, 4)}, ScheduleOf(burst));
  const SimulationResult shared = RunSimulation({.fleet = Pairs(4, 4)}, ScheduleOf(burst));
  const double queued = SummaryOf(alone).latency.ttft.Percentile(99);
  const double spread = SummaryOf(shared).latency.ttft.Percentile(99);
  EXPECT_GT(queued, 10 * spread);
  const Spread prompts = SpreadOfOutput(shared, v1::WORKER_ROLE_PREFILL);
  EXPECT_LT(static_cast<double>(prompts.most), 1.5 * static_cast<double>(prompts.fewest));
}

// Where nothing changes, no request takes another route than the one before, from the first on.
TEST(ScenariosTest, ThirtyMinutesOfConstantLoadKeepTheirRoutes) {
  std::vector<WorkerConfig> fleet = Pairs(1, 1);
  AddWorkers(v1::WORKER_ROLE_UNIFIED, 1, fleet);
  const loadgen::Schedule schedule =
      ScheduleOf({.requests = 3600, .rate = 2, .burstiness = INFINITY, .input = 600, .output = 20});
  const SimulationResult result = RunSimulation({.fleet = fleet, .policy = "auto"}, schedule);
  EXPECT_EQ(SummaryOf(result).counts.complete, 3600);
  const std::string first = result.run.records.front().end.route;
  EXPECT_EQ(RequestsOnRoute(result, first), 3600);
}

// Outputs are decoded beside others that were not there when they were predicted.
TEST(ScenariosTest, PredictionsComeTrueAtAnyLoad) {
  std::vector<WorkerConfig> fleet = Pairs(1, 1);
  AddWorkers(v1::WORKER_ROLE_UNIFIED, 2, fleet);
  for (const double rate : {1.0, 6.0, 10.0}) {
    const loadgen::Schedule schedule =
        ScheduleOf({.requests = 400, .rate = rate, .input = 2000, .output = 100});
    const SimulationResult result = RunSimulation({.fleet = fleet, .policy = "auto"}, schedule);
    const loadgen::Summary summary = SummaryOf(result);
    ASSERT_EQ(summary.predictions.size(), 3U);
    for (const loadgen::PredictionSummary& one : summary.predictions) {
      EXPECT_LT(one.error.Median(), 0.08) << one.name << " at " << rate;
      EXPECT_GT(one.share_within_20_percent, 0.9) << one.name << " at " << rate;
    }
  }
}

// A long prompt beside running outputs would make all of these miss their TPOT.
TEST(ScenariosTest, LongPromptsStayAwayFromOutputsThatTheyWouldMakeLate) {
  std::vector<WorkerConfig> fleet = Pairs(1, 1);
  AddWorkers(v1::WORKER_ROLE_UNIFIED, 2, fleet);
  const loadgen::Objectives objectives{.ttft = 1000, .tpot = 20};
  const loadgen::Schedule schedule =
      ScheduleOf({.requests = 500, .rate = 15, .input = 2000, .output = 100});
  const auto attained = [&](const std::string& policy) {
    SimulationOptions options{.fleet = fleet, .policy = policy};
    options.slo = {.ttft = ModelTime(1000), .tpot = ModelTime(20)};
    return SummaryOf(RunSimulation(options, schedule), objectives).attainment.share;
  };
  const double automatic = attained("auto");
  EXPECT_GT(automatic, 1.1 * attained("least-loaded"));
  EXPECT_GT(automatic, 1.1 * attained("round-robin"));
}

TEST(ScenariosTest, OneWorkerLessAtALoadThatTheOthersCarryMissesNoObjective) {
  const loadgen::Objectives objectives{.ttft = 1000, .tpot = 60};
  const TestLoad load{.requests = 1200, .rate = 20, .input = 400, .output = 50};
  SimulationOptions options{.fleet = Unified(6)};
  options.disturbances = {At(20, Disturbance::Kind::kLeave, "unified-5")};
  const SimulationResult result = RunSimulation(options, ScheduleOf(load));
  EXPECT_EQ(SummaryOf(result, objectives).attainment.share, 1);
  const WorkerOutcome& left = OutcomeOf(result, "unified-5");
  const WorkerOutcome& other = OutcomeOf(result, "unified-0");
  EXPECT_LT(left.usage.output_tokens, other.usage.output_tokens / 2);
}

TEST(ScenariosTest, RequestsOfALostWorkerContinueElsewhereWithAllTheirTokens) {
  for (const auto& [fleet, lost] :
       {std::pair(Unified(3), "unified-1"), std::pair(Pairs(2, 2), "decode-1"),
        std::pair(Pairs(2, 2), "prefill-1")}) {
    SimulationOptions options{.fleet = fleet};
    options.disturbances = {At(10, Disturbance::Kind::kLose, lost)};
    const SimulationResult result =
        RunSimulation(options, ScheduleOf({.requests = 300, .rate = 10, .output = 100}));
    const loadgen::Summary summary = SummaryOf(result);
    EXPECT_EQ(summary.counts.complete, 300) << lost;
    EXPECT_GT(result.router.resumes().lost(), 0U) << lost;
  }
}

// Nobody else can take the request, so that the worker has to end it.
TEST(ScenariosTest, AWorkerThatLeavesEndsWhatNobodyElseCanTake) {
  loadgen::Schedule schedule = ScheduleOf({.requests = 1, .output = 200});
  schedule.requests[0].at = Duration::zero();
  SimulationOptions options{.fleet = Unified(1)};
  options.disturbances = {At(0.5, Disturbance::Kind::kLeave, "unified-0")};
  const SimulationResult result = RunSimulation(options, schedule);
  EXPECT_EQ(SummaryOf(result).counts.complete, 1);
  EXPECT_EQ(OutcomeOf(result, "unified-0").usage.output_tokens, 200U);
}

// decode-0 holds one request. Whoever comes to it meanwhile is sent on to decode-1 and does not
// wait.
TEST(ScenariosTest, AFullDecodeWorkerSendsRequestsOnWhileAnotherHasRoom) {
  loadgen::Schedule schedule = ScheduleOf({.requests = 4, .output = 100});
  for (size_t i = 0; i < 4; ++i) schedule.requests[i].at = std::chrono::microseconds(i);
  SimulationOptions options{.fleet = Pairs(1, 2), .policy = "round-robin"};
  auto small = std::make_shared<WorkerModel>(*TestModel());
  small->kv_tokens = 1200;
  options.fleet[1].model = small;
  const SimulationResult result = RunSimulation(options, schedule);
  EXPECT_EQ(SummaryOf(result).counts.complete, 4);
  EXPECT_GT(OutcomeOf(result, "decode-0").stats.handoff_counts.refused, 0U);
  EXPECT_EQ(OutcomeOf(result, "decode-0").stats.handoff_counts.received, 1U);
  EXPECT_EQ(OutcomeOf(result, "decode-1").stats.handoff_counts.received, 3U);
}

// The worker dies right before the KV arrives, so that its loss is not known to the sender yet.
TEST(ScenariosTest, KvThatReachesALostWorkerIsNotCountedAsHandedOff) {
  loadgen::Schedule schedule = ScheduleOf({.requests = 1, .output = 2});
  schedule.requests[0].at = Duration::zero();
  SimulationOptions options{.fleet = Pairs(1, 2)};
  auto slow = std::make_shared<WorkerModel>(*TestModel());
  slow->link->bytes_per_second = 1e8;
  for (WorkerConfig& worker : options.fleet) worker.model = slow;
  const SimulationResult undisturbed = RunSimulation(options, schedule);
  const bool first = OutcomeOf(undisturbed, "decode-0").stats.handoff_counts.received == 1;
  const std::string receiver = first ? "decode-0" : "decode-1";
  const double decode = slow->steps.Step({.decode_sequences = 1, .decode_context = 1001}).count();
  // The last token takes two hops to the client.
  const double arrived_ms = LatencyOf(undisturbed.run.records[0]).e2e - decode - 0.2;
  options.disturbances = {At((arrived_ms - 0.05) * 1e-3, Disturbance::Kind::kLose, receiver)};
  const SimulationResult result = RunSimulation(options, schedule);
  EXPECT_EQ(SummaryOf(result).counts.complete, 1);
  EXPECT_EQ(OutcomeOf(result, "prefill-0").stats.handoff_counts.sent, 1U);
  EXPECT_EQ(OutcomeOf(result, receiver).stats.handoff_counts.received, 0U);
}

// A policy that looks at queues alone notices the slower worker by its longer queue.
TEST(ScenariosTest, AWorkerThatBecomesHalfAsFastGetsFewerRequests) {
  SimulationOptions options{.fleet = Unified(4)};
  options.disturbances = {At(5, Disturbance::Kind::kSlow, "unified-0", 2)};
  const SimulationResult result = RunSimulation(
      options, ScheduleOf({.requests = 2000, .rate = 40, .input = 400, .output = 50}));
  const auto tokens = [&result](const std::string& name) {
    return static_cast<double>(OutcomeOf(result, name).usage.output_tokens);
  };
  EXPECT_LT(tokens("unified-0"), 0.85 * tokens("unified-1"));
  EXPECT_EQ(SummaryOf(result).counts.complete, 2000);
}

TEST(ScenariosTest, AtSaturationTheTimeToTheFirstTokenIsQueueing) {
  const SimulationResult result =
      RunSimulation({.fleet = Unified(1)}, ScheduleOf({.requests = 400, .rate = 60, .output = 20}));
  const loadgen::Summary summary = SummaryOf(result);
  double queue = 0;
  double ttft = 0;
  for (const loadgen::NamedDistribution& stage : summary.stages.stages) {
    if (stage.name == "queue") queue = stage.ms.Median();
    if (stage.name == "ttft") ttft = stage.ms.Median();
  }
  EXPECT_GT(queue, 0.9 * ttft);
  EXPECT_EQ(summary.stages.not_adding_up, 0);
  const WorkerOutcome& worker = OutcomeOf(result, "unified-0");
  EXPECT_GT(static_cast<double>(worker.usage.busy.count()),
            0.95 * static_cast<double>(result.run.length.count()));
}

loadgen::Summary UnderLoad(double rate, Shedding shedding) {
  constexpr double kSeconds = 15;
  constexpr double kTtftMs = 1000;
  SimulationOptions options{
      .fleet = Unified(4), .policy = "auto", .max_in_flight = 1024, .shedding = shedding};
  options.slo.ttft = ModelTime(kTtftMs);
  const SimulationResult result = RunSimulation(
      options, ScheduleOf({.requests = static_cast<int>(rate * kSeconds), .rate = rate}));
  return SummaryOf(result, {.ttft = kTtftMs});
}

// Four workers compute about 60 of these prompts per second.
TEST(ScenariosTest, ThreeTimesTheLoadLeavesAsMuchGoodputWhereRequestsThatWouldBeLateAreShed) {
  double peak = 0;
  for (const double rate : {50, 60}) {
    peak = std::max(peak, *UnderLoad(rate, Shedding::kOff).goodput);
  }
  const loadgen::Summary shed = UnderLoad(180, Shedding::kSlo);
  EXPECT_GE(*shed.goodput, 0.9 * peak);
  EXPECT_LE(shed.latency.ttft.Percentile(99), 1000) << "of requests that were taken";
  EXPECT_EQ(shed.counts.complete + shed.counts.failed, 180 * 15);
  EXPECT_LT(*UnderLoad(180, Shedding::kOff).goodput, 0.6 * *shed.goodput);
}

}  // namespace
}  // namespace tandem::simulator::scenarios_test
