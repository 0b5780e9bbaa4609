#include "bench/simulator/fleet_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "router/cluster/worker_view.h"

namespace tandem::simulator {
namespace {

constexpr size_t kMostShown = 16;

// One line of the table: a worker, or the mean of several.
struct Row {
  std::string name;
  double busy_share = 0;
  double decodes_per_step = 0;
  uint64_t prompt_tokens = 0;
  uint64_t output_tokens = 0;
  int32_t peak_waiting = 0;  // of several: the largest
  int32_t peak_running = 0;
  double peak_kv_share = 0;
  uint64_t preempted = 0;
};

Row RowOf(const WorkerOutcome& worker, Duration length) {
  const WorkerUsage& usage = worker.usage;
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  return {.name = worker.name,
          .busy_share = share(ToMilliseconds(usage.busy), ToMilliseconds(length)),
          .decodes_per_step =
              share(static_cast<double>(usage.decodes), static_cast<double>(usage.steps)),
          .prompt_tokens = usage.prompt_tokens,
          .output_tokens = usage.output_tokens,
          .peak_waiting = std::max(usage.peak_waiting, usage.peak_waiting_reservations),
          .peak_running = usage.peak_running,
          .peak_kv_share = share(usage.peak_blocks, worker.stats.kv.total_blocks),
          .preempted = worker.stats.scheduler.preempted_recompute};
}

Row RowOfRole(v1::WorkerRole role, const SimulationResult& result) {
  Row sum;
  int count = 0;
  for (const WorkerOutcome& worker : result.workers) {
    if (worker.role != role) continue;
    const Row row = RowOf(worker, result.run.length);
    ++count;
    sum.busy_share += row.busy_share;
    sum.decodes_per_step += row.decodes_per_step;
    sum.prompt_tokens += row.prompt_tokens;
    sum.output_tokens += row.output_tokens;
    sum.peak_waiting = std::max(sum.peak_waiting, row.peak_waiting);
    sum.peak_running = std::max(sum.peak_running, row.peak_running);
    sum.peak_kv_share = std::max(sum.peak_kv_share, row.peak_kv_share);
    sum.preempted += row.preempted;
  }
  sum.name = fmt::format("{} {}", count, Name(role));
  sum.busy_share /= std::max(count, 1);
  sum.decodes_per_step /= std::max(count, 1);
  return sum;
}

std::string TextOf(const Row& row) {
  return fmt::format("{:<16}{:>8.1f}{:>13.1f}{:>15}{:>15}{:>13}{:>13}{:>10.1f}{:>11}\n", row.name,
                     row.busy_share * 100, row.decodes_per_step, row.prompt_tokens,
                     row.output_tokens, row.peak_waiting, row.peak_running, row.peak_kv_share * 100,
                     row.preempted);
}

std::map<std::string, int64_t> CountRoutes(const SimulationResult& result) {
  std::map<std::string, int64_t> routes;
  for (const loadgen::RequestRecord& record : result.run.records) {
    if (!record.end.route.empty()) ++routes[record.end.route];
  }
  return routes;
}

std::vector<v1::WorkerRole> RolesOf(const SimulationResult& result) {
  std::vector<v1::WorkerRole> roles;
  for (const v1::WorkerRole role :
       {v1::WORKER_ROLE_UNIFIED, v1::WORKER_ROLE_PREFILL, v1::WORKER_ROLE_DECODE}) {
    if (std::ranges::find(result.workers, role, &WorkerOutcome::role) != result.workers.end()) {
      roles.push_back(role);
    }
  }
  return roles;
}

}  // namespace

std::string Heading(const std::string& fleet, const std::string& policy) {
  return fmt::format(
      "Simulated: no worker ran, and all times below follow from parameter files.\n"
      "Fleet: {}; routing policy: {}\n",
      fleet, policy);
}

std::string FleetText(const SimulationResult& result) {
  std::string text = fmt::format("{:-^114}\n", " Simulated Workers ");
  text += fmt::format("{:<16}{:>8}{:>13}{:>15}{:>15}{:>13}{:>13}{:>10}{:>11}\n", "", "busy %",
                      "decodes/step", "prompt tokens", "output tokens", "peak waiting",
                      "peak running", "peak KV %", "preempted");
  for (const v1::WorkerRole role : RolesOf(result)) text += TextOf(RowOfRole(role, result));
  if (result.workers.size() <= kMostShown) {
    for (const WorkerOutcome& worker : result.workers) {
      text += TextOf(RowOf(worker, result.run.length));
    }
  }
  for (const auto& [route, count] : CountRoutes(result)) {
    text += fmt::format("{:<40} {:<10}\n", "Requests on route " + route, count);
  }
  const v1::RerouteUse& reroutes = result.router.reroutes();
  text += fmt::format("{:<40} {:<10}\n", "Rerouted for lack of room",
                      reroutes.other_worker() + reroutes.to_unified() +
                          reroutes.to_disaggregated() + reroutes.asked_again());
  text += fmt::format("{:<40} {:<10}\n", "Moved out of a worker's queue", reroutes.moved());
  text += fmt::format("{:<40} {:<10}\n", "Resumed after a loss or a departure",
                      result.router.resumes().lost() + result.router.resumes().migrated());
  return text +
         fmt::format("{:<40} {:016x} of {} events\n", "Digest", result.digest, result.events);
}

void AddFleet(const SimulationResult& result, nlohmann::ordered_json& json) {
  json["simulated"] = true;
  json["event_digest"] = fmt::format("{:016x}", result.digest);
  json["events"] = result.events;
  json["simulated_seconds"] = std::chrono::duration<double>(result.run.length).count();
  json["routes"] = CountRoutes(result);
  const v1::RerouteUse& reroutes = result.router.reroutes();
  json["router"] = {{"other_worker", reroutes.other_worker()},
                    {"to_unified", reroutes.to_unified()},
                    {"to_disaggregated", reroutes.to_disaggregated()},
                    {"asked_again", reroutes.asked_again()},
                    {"moved", reroutes.moved()},
                    {"resumed_after_loss", result.router.resumes().lost()},
                    {"migrated", result.router.resumes().migrated()}};
  json["workers"] = nlohmann::ordered_json::array();
  for (const WorkerOutcome& worker : result.workers) {
    const Row row = RowOf(worker, result.run.length);
    json["workers"].push_back(
        {{"name", row.name},
         {"role", Name(worker.role)},
         {"busy_share", row.busy_share},
         {"steps", worker.usage.steps},
         {"decodes_per_step", row.decodes_per_step},
         {"prompt_tokens", row.prompt_tokens},
         {"output_tokens", row.output_tokens},
         {"kv_bytes_sent", worker.stats.kv_bytes_sent},
         {"cache_hit_tokens", worker.stats.kv.hit_tokens},
         {"cache_query_tokens", worker.stats.kv.query_tokens},
         {"peak_waiting", worker.usage.peak_waiting},
         {"peak_waiting_reservations", worker.usage.peak_waiting_reservations},
         {"peak_running", row.peak_running},
         {"peak_kv_share", row.peak_kv_share},
         {"preempted", row.preempted},
         {"refused_reservations", worker.stats.handoff_counts.refused}});
  }
}

}  // namespace tandem::simulator
