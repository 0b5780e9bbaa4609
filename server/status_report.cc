#include "server/status_report.h"

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "server/generation.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

Json KvJson(const v1::KvUse& kv) {
  return {{"shared_blocks", kv.shared_blocks()},
          {"cached_blocks", kv.cached_blocks()},
          {"idle_blocks", kv.idle_blocks()},
          {"pinned_blocks", kv.pinned_blocks()},
          {"swapped_blocks", kv.swapped_blocks()},
          {"swapped", kv.swapped()},
          {"host_prefix_blocks", kv.host_prefix_blocks()},
          {"host_budget_bytes", kv.host_budget_bytes()},
          {"host_used_bytes", kv.host_used_bytes()},
          {"fragmentation", kv.fragmentation()},
          {"hit_tokens", kv.hit_tokens()},
          {"query_tokens", kv.query_tokens()},
          {"copied_blocks", kv.copied_blocks()},
          {"evicted_blocks", kv.evicted_blocks()},
          {"preempted_recompute", kv.preempted_recompute()},
          {"preempted_swap", kv.preempted_swap()},
          {"swapped_out_blocks", kv.swapped_out_blocks()},
          {"swapped_in_blocks", kv.swapped_in_blocks()},
          {"demoted_blocks", kv.demoted_blocks()},
          {"restored_blocks", kv.restored_blocks()}};
}

std::string HitRate(const v1::KvUse& kv) {
  if (kv.query_tokens() == 0) return "-";
  return fmt::format("{:.1f}%", 100.0 * static_cast<double>(kv.hit_tokens()) /
                                    static_cast<double>(kv.query_tokens()));
}

std::string Megabytes(uint64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e6);
}

std::string HostUse(const v1::KvUse& kv) {
  if (kv.host_budget_bytes() == 0) return "off";
  return Megabytes(kv.host_used_bytes()) + "/" + Megabytes(kv.host_budget_bytes());
}

Json ResumeJson(const v1::ResumeUse& resumes) {
  return {{"lost", resumes.lost()},       {"migrated", resumes.migrated()},
          {"gave_up", resumes.gave_up()}, {"p50_ms", resumes.p50_ms()},
          {"p99_ms", resumes.p99_ms()},   {"max_ms", resumes.max_ms()}};
}

// Nothing where no request ever lost a worker.
std::string ResumeLine(const v1::ResumeUse& resumes) {
  if (resumes.lost() + resumes.migrated() + resumes.gave_up() == 0) return "";
  return fmt::format(
      "resumed: {} after a loss, {} away from a leaving worker, {} gave up; pause ms: p50 {:.0f}, "
      "p99 {:.0f}, max {:.0f}\n",
      resumes.lost(), resumes.migrated(), resumes.gave_up(), resumes.p50_ms(), resumes.p99_ms(),
      resumes.max_ms());
}

}  // namespace

std::string StatusJson(const v1::GetStatusResponse& status) {
  Json routes = Json::array();
  for (int i = 0; i < status.routes_size(); ++i) routes.push_back(Name(status.routes(i)));
  Json workers = Json::array();
  for (const v1::WorkerStatus& worker : status.workers()) {
    workers.push_back({{"name", worker.name()},
                       {"role", worker.role()},
                       {"address", worker.address()},
                       {"pid", worker.pid()},
                       {"device", worker.device()},
                       {"alive", worker.alive()},
                       {"running", worker.running()},
                       {"waiting", worker.waiting()},
                       {"total_blocks", worker.total_blocks()},
                       {"free_blocks", worker.free_blocks()},
                       {"requests_finished", worker.requests_finished()},
                       {"prompt_tokens", worker.prompt_tokens()},
                       {"output_tokens", worker.output_tokens()},
                       {"kv_bytes_sent", worker.kv_bytes_sent()},
                       {"kv_bytes_received", worker.kv_bytes_received()},
                       {"heartbeat_age_ms", worker.heartbeat_age_ms()},
                       {"kv", KvJson(worker.kv())}});
  }
  return Json({{"ready", status.ready()},
               {"routes", std::move(routes)},
               {"model", status.model()},
               {"version", status.version()},
               {"max_context_tokens", status.max_context_tokens()},
               {"requests_in_flight", status.requests_in_flight()},
               {"requests_total", status.requests_total()},
               {"resumes", ResumeJson(status.resumes())},
               {"workers", std::move(workers)}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string WorkerTable(const v1::GetStatusResponse& status) {
  std::string routes;
  for (int i = 0; i < status.routes_size(); ++i) {
    routes += fmt::format("{}{}", i == 0 ? "" : ", ", Name(status.routes(i)));
  }
  std::string table =
      fmt::format("{}: model {}, context {}, routes: {}, {} in flight, {} so far, version {}\n",
                  status.ready() ? "ready" : "not ready", status.model(),
                  status.max_context_tokens(), routes.empty() ? "none" : routes,
                  status.requests_in_flight(), status.requests_total(), status.version());
  table += ResumeLine(status.resumes());
  static constexpr char kRow[] =
      "{:<14} {:<8} {:<8} {:<21} {:>7} {:<6} {:>7} {:>7} {:>15} {:>9} {:>10} {:>9}\n";
  table += fmt::format(kRow, "NAME", "ROLE", "DEVICE", "ADDRESS", "PID", "STATE", "RUNNING",
                       "WAITING", "FREE/ALL BLOCKS", "FINISHED", "TOKENS OUT", "HEARD MS");
  for (const v1::WorkerStatus& worker : status.workers()) {
    table += fmt::format(kRow, worker.name(), worker.role(), worker.device(), worker.address(),
                         worker.pid(), worker.alive() ? "alive" : "lost", worker.running(),
                         worker.waiting(),
                         fmt::format("{}/{}", worker.free_blocks(), worker.total_blocks()),
                         worker.requests_finished(), worker.output_tokens(),
                         fmt::format("{:.0f}", worker.heartbeat_age_ms()));
  }
  return table;
}

std::string BlockTable(const v1::GetStatusResponse& status) {
  static constexpr char kRow[] =
      "{:<14} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>17} {:>8} {:>6} {:>16}\n";
  std::string table =
      fmt::format(kRow, "KV BLOCKS OF", "POOL", "FREE", "CACHED", "IDLE", "SHARED", "PINNED",
                  "SWAPPED", "HOST MB/BUDGET", "UNFILLED", "HITS", "PREEMPTED (SWAP)");
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::KvUse& kv = worker.kv();
    table += fmt::format(kRow, worker.name(), worker.total_blocks(), worker.free_blocks(),
                         kv.cached_blocks(), kv.idle_blocks(), kv.shared_blocks(),
                         kv.pinned_blocks(), kv.swapped_blocks(), HostUse(kv),
                         fmt::format("{:.1f}%", 100 * kv.fragmentation()), HitRate(kv),
                         fmt::format("{} ({})", kv.preempted_recompute() + kv.preempted_swap(),
                                     kv.preempted_swap()));
  }
  return table +
         "idle: cached and in no sequence, given up when room is needed; unfilled: slots of "
         "sequences' blocks\nwithout a token; hits: cached ones of the prompt tokens looked up\n";
}

}  // namespace tandem
