#include "server/admin/status_report.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>

#include "base/simulated_model.h"
#include "fmt/format.h"
#include "router/cluster/worker_costs.h"
#include "server/commands/generation.h"

namespace tandem {
namespace {

std::string State(const v1::WorkerStatus& worker) {
  if (!worker.alive()) return "lost";
  if (worker.draining()) return "draining";
  if (!worker.load().not_ready().empty()) return "not-ready";
  return worker.load().starting() ? "starting" : "alive";
}

std::string HitRate(const v1::KvUse& kv) {
  if (kv.query_tokens() == 0) return "-";
  return fmt::format("{:.1f}%", 100.0 * static_cast<double>(kv.hit_tokens()) /
                                    static_cast<double>(kv.query_tokens()));
}

std::string Megabytes(uint64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e6);
}

// Formats a rate with three significant digits, however slow the link.
std::string Rate(double gigabytes_per_second) {
  if (gigabytes_per_second <= 0) return "-";
  const int digits = 2 - static_cast<int>(std::floor(std::log10(gigabytes_per_second)));
  return fmt::format("{:.{}f}", gigabytes_per_second, std::clamp(digits, 0, 9));
}

// Formats the time to set up a connection; "-" where it was not measured because the connection
// existed before the first probe.
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
    const v1::HandoffUse& use = worker.load().handoffs();
    table += fmt::format(kRow, worker.name(), use.sending(), use.reservations(),
                         use.waiting_reservations(), use.sent(), use.received(), use.retried(),
                         use.lapsed(), use.refused(), use.corrupted_frames(), use.stale_frames(),
                         use.unauthenticated_frames(), use.connections_closed(),
                         Megabytes(use.buffer_bytes()));
  }
  return table;
}

std::string HostUse(const v1::KvUse& kv) {
  if (kv.host_budget_bytes() == 0) return "off";
  const std::string use = Megabytes(kv.host_used_bytes()) + "/" + Megabytes(kv.host_budget_bytes());
  if (kv.host_stored_bytes() == 0) return use;
  return fmt::format(
      "{} {:.2f}x", use,
      static_cast<double>(kv.host_raw_bytes()) / static_cast<double>(kv.host_stored_bytes()));
}

// The line about requests that a worker refused; empty where no worker ever refused one.
std::string RerouteLine(const v1::RerouteUse& reroutes) {
  if (reroutes.latest().empty()) return "";
  return fmt::format(
      "refused for want of room and rerouted: {} to another worker, {} to unified, {} to "
      "disaggregated, {} asked again; latest: {}\n",
      reroutes.other_worker(), reroutes.to_unified(), reroutes.to_disaggregated(),
      reroutes.asked_again(), reroutes.latest());
}

// The line about requests that the router refused for a limit; empty where it never refused one.
std::string AdmissionLine(const v1::AdmissionUse& use) {
  const uint64_t tenants = use.refused_tenant_share() + use.refused_tenant_in_flight() +
                           use.refused_tenant_requests() + use.refused_tenant_tokens();
  if (use.refused_in_flight() + tenants + use.shed_deadline() + use.shed_slo() == 0) return "";
  return fmt::format(
      "refused: {} for want of room, {} by limits of tenants, {} that would have begun after their "
      "deadline, {} that would have missed their TTFT SLO\n",
      use.refused_in_flight(), tenants, use.shed_deadline(), use.shed_slo());
}

// The table of tenants; empty where no tenant is named.
std::string TenantTable(const v1::AdmissionUse& use) {
  if (use.tenants().empty()) return "";
  static constexpr char kRow[] = "{:<24} {:>9} {:>9} {:>9} {:>12}\n";
  std::string table = fmt::format(kRow, "TENANT", "IN FLIGHT", "ADMITTED", "REFUSED", "TOKENS");
  for (const v1::TenantUse& tenant : use.tenants()) {
    table += fmt::format(kRow, tenant.tenant().empty() ? "(others)" : tenant.tenant(),
                         tenant.in_flight(), tenant.admitted(), tenant.refused(), tenant.tokens());
  }
  return table;
}

// The line about requests that lost a worker; empty where none ever did.
std::string ResumeLine(const v1::ResumeUse& resumes) {
  if (resumes.lost() + resumes.migrated() + resumes.gave_up() == 0) return "";
  return fmt::format(
      "resumed: {} after a loss, {} away from a leaving worker, {} gave up; pause ms: p50 {:.0f}, "
      "p99 {:.0f}, max {:.0f}; since the last token: p50 {:.0f}, p99 {:.0f}, max {:.0f}\n",
      resumes.lost(), resumes.migrated(), resumes.gave_up(), resumes.p50_ms(), resumes.p99_ms(),
      resumes.max_ms(), resumes.waited().p50_ms(), resumes.waited().p99_ms(),
      resumes.waited().max_ms());
}

// The line about the predicted lengths of outputs; empty before an output has ended by itself or at
// its limit.
std::string LengthLine(const v1::OutputLengthUse& lengths) {
  if (lengths.stopped() + lengths.capped() == 0) return "";
  return fmt::format(
      "output lengths ({}): {:.1f} tokens, predicted {:.1f}; off from the median by {:.1f}, "
      "{:.0f}% "
      "within p90; {} stopped, {} capped, {} interrupted\n",
      lengths.predictor(), lengths.mean_tokens(), lengths.predicted_tokens(),
      lengths.error_tokens(), 100 * lengths.within_p90(), lengths.stopped(), lengths.capped(),
      lengths.interrupted());
}

std::string ErrorText(const v1::PredictionError& error) {
  std::string name = error.term();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string text = fmt::format("{} off by {:.1f}% (bias {:+.1f}%", name, 100 * error.error(),
                                 100 * error.bias());
  // The coverage is stated only once there is an interval.
  if (error.interval() > 0) {
    text += fmt::format(", {:.0f}% within the stated {:.1f}%", 100 * error.coverage(),
                        100 * error.interval());
  }
  return text + ")";
}

// The line about the errors of predictions; empty where no request was predicted.
std::string PredictionLine(const v1::PredictionUse& use) {
  std::string text;
  uint64_t compared = 0;
  for (const v1::PredictionError& error : use.errors()) {
    const bool whole = error.term() == "ttft" || error.term() == "tpot" || error.term() == "e2e";
    if (!whole || !error.worker().empty()) continue;
    text += (text.empty() ? "" : ", ") + ErrorText(error);
    compared = std::max(compared, error.compared());
  }
  if (text.empty()) return "";
  return fmt::format("predictions of {}, {} requests compared: {}\n", use.policy(), compared, text);
}

std::string SloText(std::string_view name, double milliseconds) {
  return milliseconds > 0 ? fmt::format(", {} within {} ms", name, milliseconds) : "";
}

// The line about the routes of requests; empty before the first request.
std::string RoutingLine(const v1::RoutingUse& routing) {
  if (routing.unified() + routing.disaggregated() == 0) return "";
  const std::string missing =
      routing.missing().empty() ? "" : fmt::format("; now {}", routing.missing());
  return fmt::format(
      "routed by {}{}{}: {} unified, {} disaggregated; {} to the lowest cost, {} to a less loaded "
      "placement within the error, {} without measured costs{}\n",
      routing.policy(), SloText("TTFT", routing.ttft_slo_ms()),
      SloText("TPOT", routing.tpot_slo_ms()), routing.unified(), routing.disaggregated(),
      routing.lowest_cost(), routing.within_error(), routing.not_measured(), missing);
}

// The line about the prefix index; empty where nothing was looked up.
std::string PrefixLine(const v1::PrefixIndexUse& index) {
  if (index.lookups() == 0) return "";
  return fmt::format(
      "prefix index: {} blocks, {}/{} MB, {} of {} lookups hit; cached tokens predicted {}, actual "
      "{}, differing by {}\n",
      index.entries(), Megabytes(index.bytes()), Megabytes(index.limit_bytes()), index.hits(),
      index.lookups(), index.predicted_tokens(), index.cached_tokens(), index.error_tokens());
}

// The line about sessions; empty while the router knows no session.
std::string SessionLine(const v1::SessionUse& sessions) {
  if (sessions.entries() == 0) return "";
  return fmt::format("sessions: {}, {} requests stayed with their session's workers, {} moved\n",
                     sessions.entries(), sessions.kept(), sessions.moved());
}

}  // namespace

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
  if (IsSimulatedModel(status.model())) {
    table += "simulated: workers take the times of a parameter file and make tokens up\n";
  }
  table += RoutingLine(status.routing());
  table += ResumeLine(status.resumes());
  table += AdmissionLine(status.admission());
  table += RerouteLine(status.reroutes());
  table += LengthLine(status.output_lengths());
  table += PredictionLine(status.predictions());
  table += PrefixLine(status.prefix_index());
  table += SessionLine(status.sessions());
  static constexpr char kRow[] =
      "{:<14} {:<8} {:<8} {:<21} {:>7} {:<9} {:>7} {:>7} {:>15} {:>9} {:>10} {:>9}\n";
  table += fmt::format(kRow, "NAME", "ROLE", "DEVICE", "ADDRESS", "PID", "STATE", "RUNNING",
                       "WAITING", "FREE/ALL BLOCKS", "FINISHED", "TOKENS OUT", "HEARD MS");
  for (const v1::WorkerStatus& worker : status.workers()) {
    table +=
        fmt::format(kRow, worker.name(), worker.role(), worker.device(), worker.address(),
                    worker.pid(), State(worker), worker.load().running(), worker.load().waiting(),
                    fmt::format("{}/{}", worker.load().free_blocks(), worker.load().total_blocks()),
                    worker.load().requests_finished(), worker.load().output_tokens(),
                    fmt::format("{:.0f}", worker.heartbeat_age_ms()));
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.load().not_ready().empty()) continue;
    table += fmt::format("{} is not ready: {}\n", worker.name(), worker.load().not_ready());
  }
  table += TenantTable(status.admission());
  return table;
}

std::string CostTable(const v1::GetStatusResponse& status) {
  static constexpr char kRow[] = "{:<14} {:<9} {:>14} {:>9} {:>7} {:>7} {:>9} {:>10}\n";
  std::string table = fmt::format(kRow, "COST OF", "SOURCE", "ALPHA MS/TOKEN", "BETA MS", "ERROR",
                                  "DRIFT", "REVISION", "STEPS");
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::CostModel& cost = worker.load().cost();
    const absl::StatusOr<std::shared_ptr<const WorkerCosts>> costs = ReadCosts(cost);
    if (!worker.load().has_cost() || !costs.ok()) {
      table += fmt::format(kRow, worker.name(), "none", "-", "-", "-", "-", "-", "-");
      continue;
    }
    const StepModel& steps = (*costs)->steps;
    table += fmt::format(kRow, worker.name(), Name(cost.source()),
                         fmt::format("{:.4f}", steps.coefficients().alpha.token_ms),
                         fmt::format("{:.3f}", Beta(steps).count()),
                         fmt::format("{:.1f}%", 100 * cost.error()),
                         cost.drift() > 0 ? fmt::format("{:.2f}", cost.drift()) : "-",
                         cost.revision(), cost.steps());
  }
  return table +
         "alpha: time per prompt token; beta: time to decode one sequence with 512 tokens of "
         "context; error: of the\npredicted time of the latest steps; drift: measured / "
         "predicted; none: nothing was measured yet\n";
}

// A link without a peer stands for a transport that this worker does not have.
bool IsLeftOut(const v1::LinkStatus& link) { return link.peer().empty(); }

// The problems of one link, one line each.
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
  // When the link has a failure, the failure of its probe is the same.
  if (link.failure().empty()) add("could not probe the link to", link.probe_failure());
  return text;
}

std::string Remarks(const v1::GetStatusResponse& status) {
  std::string text;
  for (const v1::WorkerStatus& worker : status.workers()) {
    for (const v1::LinkStatus& link : worker.load().links()) text += Remarks(worker.name(), link);
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
    for (const v1::LinkStatus& link : worker.load().links()) {
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
      "{:<14} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>20} {:>8} {:>6} {:>16}\n";
  std::string table =
      fmt::format(kRow, "KV BLOCKS OF", "POOL", "FREE", "CACHED", "IDLE", "SHARED", "PINNED",
                  "SWAPPED", "HOST MB/BUDGET", "UNFILLED", "HITS", "PREEMPTED (SWAP)");
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::KvUse& kv = worker.load().kv();
    table += fmt::format(kRow, worker.name(), worker.load().total_blocks(),
                         worker.load().free_blocks(), kv.cached_blocks(), kv.idle_blocks(),
                         kv.shared_blocks(), kv.pinned_blocks(), kv.swapped_blocks(), HostUse(kv),
                         fmt::format("{:.1f}%", 100 * kv.fragmentation()), HitRate(kv),
                         fmt::format("{} ({})", kv.preempted_recompute() + kv.preempted_swap(),
                                     kv.preempted_swap()));
  }
  return table +
         "idle: cached and in no sequence, given up when room is needed; unfilled: slots of "
         "sequences' blocks\nwithout a token; hits: cached ones of the prompt tokens looked up\n";
}

}  // namespace tandem
