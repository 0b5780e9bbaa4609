#include "bench/serving/sweep.h"

#include <cstdio>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "bench/serving/progress.h"
#include "bench/serving/report_json.h"
#include "bench/serving/runner.h"
#include "bench/serving/summary.h"
#include "bench/serving/sweep_report.h"
#include "bench/serving/sweep_standings.h"
#include "bench/serving/sweep_store.h"
#include "bench/serving/sweep_workload.h"
#include "bench/serving/workload.h"
#include "fmt/format.h"

namespace tandem::loadgen {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWarmUpPart = 20;

// A server that takes much longer than the schedule to end has fallen behind for good.
constexpr std::chrono::minutes kDrain(2);
constexpr std::chrono::minutes kPatience(1);

SweepLoad LoadOf(const SweepPlan& plan, const SweepPoint& point) {
  return {.context_tokens = plan.context_tokens,
          .rate = point.rate,
          .requests = RequestsOf(plan, point.rate),
          .seed = point.seed};
}

// The schedules of a plan one after another: all strategies of a load share one.
class Schedules {
 public:
  explicit Schedules(const SweepPlan& plan) : plan_(plan) {}

  absl::StatusOr<const Schedule*> Of(const SweepPoint& point) {
    const auto load = std::make_tuple(point.workload, point.rate, point.seed);
    if (!latest_ || load != load_) {
      ASSIGN_OR_RETURN(latest_, MakeSweepSchedule(point.workload, LoadOf(plan_, point)));
      load_ = load;
    }
    return &*latest_;
  }

 private:
  const SweepPlan& plan_;
  std::tuple<std::string, double, uint64_t> load_;
  std::optional<Schedule> latest_;
};

void PrintPlan(const SweepPlan& plan, const std::vector<SweepPoint>& points, size_t done) {
  fmt::print("{} points of at least {} requests, {} of them measured before\n", points.size(),
             plan.requests, done);
  if (plan.requests < kHeadlineRequests) {
    fmt::print(stderr,
               "warning: --num-prompts={}: with fewer than {} requests per point, differences of a "
               "few percent are noise\n",
               plan.requests, kHeadlineRequests);
  }
}

void PrintResult(size_t number, size_t count, const SweepPoint& point, const Json& result) {
  fmt::print("[{}/{}] {}: goodput {:.3f} req/s, {:.1f}% good, TTFT p99 {:.0f} ms\n", number, count,
             NameOf(point), NumberIn(result, "request_goodput"),
             100 * NumberIn(result, "slo_attainment", "share"),
             NumberIn(result, "p99_scheduled_ttft_ms"));
  std::fflush(stdout);
}

}  // namespace

std::string NameOf(const SweepPoint& point) {
  return fmt::format("{} at {:g} req/s, seed {}, {}", point.workload, point.rate, point.seed,
                     point.strategy.name);
}

Duration WarmUpOf(const Schedule& schedule) { return schedule.Length() / kWarmUpPart; }

RunOptions PointRunOptions() { return {.drain_timeout = kDrain}; }

Json PointResult(const SweepPlan& plan, const SweepPoint& point, const Schedule& schedule,
                 const RunResult& run, const PointServer& server) {
  const SummaryOptions options = {.warmup = WarmUpOf(schedule),
                                  .objectives = plan.objectives,
                                  .token_gaps = server.has_each_token};
  const RunDescription description = {.backend = server.backend,
                                      .model = server.model,
                                      .label = point.strategy.name,
                                      .arrivals = point.workload,
                                      .request_rate = point.rate,
                                      .num_prompts = static_cast<int64_t>(schedule.requests.size()),
                                      .seed = point.seed,
                                      .schedule_hash = schedule.HashText(),
                                      .warmup_seconds = ToMilliseconds(options.warmup) / 1e3,
                                      .objectives = plan.objectives};
  Json result = JsonReport(description, Summarize(run, options), ReportChoice());
  std::map<std::string, int64_t> routes;
  for (const RequestRecord& record : run.records) ++routes[record.end.route];
  routes.erase("");
  result["routes"] = routes;
  return result;
}

absl::StatusOr<Json> MeasurePoint(const SweepPlan& plan, const SweepPoint& point,
                                  const Schedule& schedule, Backend& backend) {
  ASSIGN_OR_RETURN(const ServerInfo server, backend.Connect(kPatience));
  if (server.max_context_tokens > 0) {
    RETURN_IF_ERROR(CheckFits(schedule, server.max_context_tokens));
  }
  RunCounts counts;
  std::optional<ProgressDisplay> progress(std::in_place, NameOf(point),
                                          static_cast<int64_t>(schedule.requests.size()), counts);
  const RunResult run = Run(schedule, PointRunOptions(), backend, counts);
  progress.reset();
  return PointResult(plan, point, schedule, run,
                     {.backend = std::string(backend.name()), .model = server.model});
}

absl::Status RunSweep(const SweepPlan& plan, const std::string& folder, SweepMode mode,
                      const PointRunner& run_point) {
  const std::vector<SweepPoint> points = PointsOf(plan);
  Schedules schedules(plan);
  if (mode == SweepMode::kDryRun) {
    for (const SweepPoint& point : points) {
      ASSIGN_OR_RETURN(const Schedule* const schedule, schedules.Of(point));
      fmt::print("{}: schedule {}\n", NameOf(point), schedule->HashText());
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const SweepStore store, SweepStore::Open(folder));
  std::vector<std::optional<Json>> results;
  size_t done = 0;
  for (const SweepPoint& point : points) {
    ASSIGN_OR_RETURN(const Schedule* const schedule, schedules.Of(point));
    ASSIGN_OR_RETURN(results.emplace_back(), store.Find(plan, point, schedule->HashText()));
    if (results.back()) ++done;
  }
  PrintPlan(plan, points, done);
  SweepResults all;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!results[i]) {
      ASSIGN_OR_RETURN(const Schedule* const schedule, schedules.Of(points[i]));
      ASSIGN_OR_RETURN(results[i], run_point(points[i], *schedule));
      RETURN_IF_ERROR(store.Save(plan, points[i], schedule->HashText(), *results[i]));
      PrintResult(i + 1, points.size(), points[i], *results[i]);
    }
    all.push_back({points[i], *std::move(results[i])});
  }
  RETURN_IF_ERROR(store.Write("report.md", SweepMarkdown(plan, all)));
  RETURN_IF_ERROR(store.Write("report.html", SweepHtml(plan, all)));
  RETURN_IF_ERROR(store.Write("sweep.json", JsonText(SweepJson(plan, all)) + "\n"));
  fmt::print("report: report.md, report.html and sweep.json in {}\n", folder);
  return absl::OkStatus();
}

}  // namespace tandem::loadgen
