#include "server/status_report.h"

#include <algorithm>
#include <cmath>

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

Json HandoffJson(const v1::HandoffUse& handoffs) {
  return {{"sending", handoffs.sending()},
          {"reservations", handoffs.reservations()},
          {"waiting_reservations", handoffs.waiting_reservations()},
          {"draining_reservations", handoffs.draining_reservations()},
          {"sent", handoffs.sent()},
          {"received", handoffs.received()},
          {"retried", handoffs.retried()},
          {"lapsed", handoffs.lapsed()},
          {"refused", handoffs.refused()},
          {"corrupted_frames", handoffs.corrupted_frames()},
          {"stale_frames", handoffs.stale_frames()},
          {"unauthenticated_frames", handoffs.stranger_frames()},
          {"connections_closed", handoffs.connections_closed()},
          {"buffer_bytes", handoffs.buffer_bytes()}};
}

Json LinksJson(const v1::WorkerStatus& worker) {
  Json links = Json::array();
  for (const v1::LinkStatus& link : worker.links()) {
    links.push_back({{"peer", link.peer()},
                     {"transport", link.transport()},
                     {"in_use", link.in_use()},
                     {"probe_gb_per_s", link.probe_gb_per_s()},
                     {"best_probe_gb_per_s", link.best_probe_gb_per_s()},
                     {"gb_per_s", link.gb_per_s()},
                     {"fastest_gb_per_s", link.fastest_gb_per_s()},
                     {"setup_us", link.setup_us()},
                     {"operation_us", link.operation_us()},
                     {"bytes", link.bytes()},
                     {"bytes_in_flight", link.bytes_in_flight()},
                     {"resent_frames", link.resent_frames()},
                     {"fallbacks", link.fallbacks()},
                     {"fallback_reason", link.fallback_reason()},
                     {"failure", link.failure()},
                     {"probe_failure", link.probe_failure()},
                     {"unreachable", link.unreachable()}});
  }
  return links;
}

std::string State(const v1::WorkerStatus& worker) {
  if (!worker.alive()) return "lost";
  if (!worker.not_ready().empty()) return "not-ready";
  return worker.starting() ? "starting" : "alive";
}

std::string HitRate(const v1::KvUse& kv) {
  if (kv.query_tokens() == 0) return "-";
  return fmt::format("{:.1f}%", 100.0 * static_cast<double>(kv.hit_tokens()) /
                                    static_cast<double>(kv.query_tokens()));
}

std::string Megabytes(uint64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e6);
}

// Three digits that count, however slow the link.
std::string Rate(double gigabytes_per_second) {
  if (gigabytes_per_second <= 0) return "-";
  const int digits = 2 - static_cast<int>(std::floor(std::log10(gigabytes_per_second)));
  return fmt::format("{:.{}f}", gigabytes_per_second, std::clamp(digits, 0, 9));
}

// Not measured where the connection was there before the first probe.
std::string Setup(double microseconds) {
  return microseconds > 0 ? fmt::format("{:.0f}", microseconds) : "-";
}

std::string Fallbacks(const v1::LinkStatus& link) {
  if (link.fallbacks() == 0) return "0";
  return fmt::format("{}: {}", link.fallbacks(), link.fallback_reason());
}

std::string HandoffTable(const v1::GetStatusResponse& status) {
  static constexpr char kRow[] =
      "{:<14} {:>7} {:>8} {:>7} {:>7} {:>8} {:>7} {:>6} {:>7} {:>9} {:>5} {:>15} {:>6} {:>9}\n";
  std::string table = fmt::format(kRow, "HAND-OFFS OF", "SENDING", "RESERVED", "WAITING", "SENT",
                                  "RECEIVED", "RETRIED", "LAPSED", "REFUSED", "CORRUPTED", "STALE",
                                  "UNAUTHENTICATED", "CLOSED", "BUFFER MB");
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::HandoffUse& use = worker.handoffs();
    table +=
        fmt::format(kRow, worker.name(), use.sending(), use.reservations(),
                    use.waiting_reservations(), use.sent(), use.received(), use.retried(),
                    use.lapsed(), use.refused(), use.corrupted_frames(), use.stale_frames(),
                    use.stranger_frames(), use.connections_closed(), Megabytes(use.buffer_bytes()));
  }
  return table;
}

std::string HostUse(const v1::KvUse& kv) {
  if (kv.host_budget_bytes() == 0) return "off";
  return Megabytes(kv.host_used_bytes()) + "/" + Megabytes(kv.host_budget_bytes());
}

Json ResumeJson(const v1::ResumeUse& resumes) {
  Json causes = Json::object();
  for (const v1::ResumeCause& cause : resumes.causes()) {
    causes[cause.cause()] = {{"resumes", cause.resumes()},
                             {"p50_ms", cause.p50_ms()},
                             {"p99_ms", cause.p99_ms()},
                             {"max_ms", cause.max_ms()}};
  }
  return {{"lost", resumes.lost()},
          {"migrated", resumes.migrated()},
          {"gave_up", resumes.gave_up()},
          {"p50_ms", resumes.p50_ms()},
          {"p99_ms", resumes.p99_ms()},
          {"max_ms", resumes.max_ms()},
          {"causes", std::move(causes)},
          {"waited",
           {{"p50_ms", resumes.waited().p50_ms()},
            {"p99_ms", resumes.waited().p99_ms()},
            {"max_ms", resumes.waited().max_ms()}}}};
}

Json RerouteJson(const v1::RerouteUse& reroutes) {
  return {{"other_worker", reroutes.other_worker()},
          {"to_unified", reroutes.to_unified()},
          {"to_disaggregated", reroutes.to_disaggregated()},
          {"asked_again", reroutes.asked_again()},
          {"moved", reroutes.moved()},
          {"latest", reroutes.latest()}};
}

// Nothing where no worker ever refused a request.
std::string RerouteLine(const v1::RerouteUse& reroutes) {
  if (reroutes.latest().empty()) return "";
  return fmt::format(
      "refused for want of room and rerouted: {} to another worker, {} to unified, {} to "
      "disaggregated, {} asked again; latest: {}\n",
      reroutes.other_worker(), reroutes.to_unified(), reroutes.to_disaggregated(),
      reroutes.asked_again(), reroutes.latest());
}

// Nothing where no request ever lost a worker.
std::string ResumeLine(const v1::ResumeUse& resumes) {
  if (resumes.lost() + resumes.migrated() + resumes.gave_up() == 0) return "";
  return fmt::format(
      "resumed: {} after a loss, {} away from a leaving worker, {} gave up; pause ms: p50 {:.0f}, "
      "p99 {:.0f}, max {:.0f}; since the last token: p50 {:.0f}, p99 {:.0f}, max {:.0f}\n",
      resumes.lost(), resumes.migrated(), resumes.gave_up(), resumes.p50_ms(), resumes.p99_ms(),
      resumes.max_ms(), resumes.waited().p50_ms(), resumes.waited().p99_ms(),
      resumes.waited().max_ms());
}

Json TokenizeJson(const v1::TokenizeUse& use) {
  return {{"short_texts", use.short_texts()},
          {"long_texts", use.long_texts()},
          {"long_text_bytes", use.long_text_bytes()},
          {"texts_total", use.texts_total()},
          {"refused", use.refused()}};
}

Json AnswersJson(const v1::AnswerBufferUse& use) {
  return {{"bytes", use.bytes()},
          {"limit_bytes", use.limit_bytes()},
          {"refused", use.refused()},
          {"unread", use.unread()}};
}

}  // namespace

Json ConnectionsJson(const v1::ConnectionUse& use) {
  return {{"open", use.open()},
          {"limit", use.limit()},
          {"refused", use.refused()},
          {"full", use.full()}};
}

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
                       {"not_ready", worker.not_ready()},
                       {"starting", worker.starting()},
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
                       {"kv", KvJson(worker.kv())},
                       {"handoffs", HandoffJson(worker.handoffs())},
                       {"links", LinksJson(worker)},
                       {"connections", ConnectionsJson(worker.connections())},
                       {"log_lines_dropped", worker.log_lines_dropped()}});
  }
  return Json({{"ready", status.ready()},
               {"routes", std::move(routes)},
               {"model", status.model()},
               {"version", status.version()},
               {"max_context_tokens", status.max_context_tokens()},
               {"requests_in_flight", status.requests_in_flight()},
               {"requests_total", status.requests_total()},
               {"resumes", ResumeJson(status.resumes())},
               {"reroutes", RerouteJson(status.reroutes())},
               {"tokenizing", TokenizeJson(status.tokenizing())},
               {"leases_lapsed", status.leases_lapsed()},
               {"answers", AnswersJson(status.answers())},
               {"connections", ConnectionsJson(status.connections())},
               {"log_lines_dropped", status.log_lines_dropped()},
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
  table += RerouteLine(status.reroutes());
  static constexpr char kRow[] =
      "{:<14} {:<8} {:<8} {:<21} {:>7} {:<9} {:>7} {:>7} {:>15} {:>9} {:>10} {:>9}\n";
  table += fmt::format(kRow, "NAME", "ROLE", "DEVICE", "ADDRESS", "PID", "STATE", "RUNNING",
                       "WAITING", "FREE/ALL BLOCKS", "FINISHED", "TOKENS OUT", "HEARD MS");
  for (const v1::WorkerStatus& worker : status.workers()) {
    table += fmt::format(kRow, worker.name(), worker.role(), worker.device(), worker.address(),
                         worker.pid(), State(worker), worker.running(), worker.waiting(),
                         fmt::format("{}/{}", worker.free_blocks(), worker.total_blocks()),
                         worker.requests_finished(), worker.output_tokens(),
                         fmt::format("{:.0f}", worker.heartbeat_age_ms()));
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.not_ready().empty()) continue;
    table += fmt::format("{} is not ready: {}\n", worker.name(), worker.not_ready());
  }
  return table;
}

// To nobody: a transport that this worker has not.
bool IsLeftOut(const v1::LinkStatus& link) { return link.peer().empty(); }

// What is not as it might be with one link, a line each.
std::string Remarks(const std::string& worker, const v1::LinkStatus& link) {
  if (IsLeftOut(link)) {
    return fmt::format("{} does without {}: {}\n", worker, link.transport(), link.failure());
  }
  std::string text;
  const auto add = [&](std::string_view what, const std::string& why) {
    if (why.empty()) return;
    text += fmt::format("{} {} {} by {}: {}\n", worker, what, link.peer(), link.transport(), why);
  };
  add("cannot reach", link.unreachable());
  add("does not reach", link.failure());
  // Else it is the same.
  if (link.failure().empty()) add("could not probe the link to", link.probe_failure());
  return text;
}

std::string Remarks(const v1::GetStatusResponse& status) {
  std::string text;
  for (const v1::WorkerStatus& worker : status.workers()) {
    for (const v1::LinkStatus& link : worker.links()) text += Remarks(worker.name(), link);
  }
  return text;
}

std::string LinkTable(const v1::GetStatusResponse& status) {
  static constexpr char kRow[] =
      "{:<14} {:<14} {:<9} {:<6} {:>10} {:>8} {:>8} {:>9} {:>9} {:>10} {:>8} {:>6} {}\n";
  std::string table =
      fmt::format(kRow, "KV FROM", "TO", "OVER", "IN USE", "PROBE GB/S", "BEST", "OF LATE",
                  "SETUP US", "FRAME US", "MB MOVED", "MB OUT", "RESENT", "FALLBACKS");
  for (const v1::WorkerStatus& worker : status.workers()) {
    for (const v1::LinkStatus& link : worker.links()) {
      if (IsLeftOut(link)) continue;
      table += fmt::format(kRow, worker.name(), link.peer(), link.transport(),
                           link.in_use() ? "yes" : "-", Rate(link.probe_gb_per_s()),
                           Rate(link.best_probe_gb_per_s()), Rate(link.gb_per_s()),
                           Setup(link.setup_us()), fmt::format("{:.1f}", link.operation_us()),
                           Megabytes(link.bytes()), Megabytes(link.bytes_in_flight()),
                           link.resent_frames(), Fallbacks(link));
    }
  }
  return table + Remarks(status) + "\n" + HandoffTable(status);
}

std::string BlocksTable(const v1::GetStatusResponse& status) {
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
