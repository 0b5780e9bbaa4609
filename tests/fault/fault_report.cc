// What a run says of itself: a table for people, JSON for the record.

#include <algorithm>
#include <cmath>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tests/fault/fault_run.h"

namespace tandem {
namespace {

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

nlohmann::ordered_json Summary(const std::vector<double>& times) {
  return {{"count", times.size()},
          {"p50_ms", std::round(Quantile(times, 0.5))},
          {"p99_ms", std::round(Quantile(times, 0.99))},
          {"max_ms", std::round(Quantile(times, 1))}};
}

std::string LossLine(std::string_view what, const std::vector<double>& times) {
  return fmt::format("{:<24} {:>5}, p50 {:.0f} ms, p99 {:.0f} ms, max {:.0f} ms\n", what,
                     times.size(), Quantile(times, 0.5), Quantile(times, 0.99), Quantile(times, 1));
}

std::string SetupLine(FaultSetup setup, const FleetReport& report) {
  const RowCount total = report.Total();
  return fmt::format(
      "fleet {:<10} scheduled={} hit={} missed={} not_run={} at once: sending={} waiting={} "
      "draining={}\n",
      Name(setup), total.scheduled, total.hit, total.missed, report.not_run, report.peaks.sending,
      report.peaks.waiting_reservations, report.peaks.draining_reservations);
}

std::string CauseLines(const v1::ResumeUse& resumes) {
  std::string text;
  for (const v1::ResumeCause& cause : resumes.causes()) {
    text +=
        fmt::format("  cause {:<12} {:>5}, p50 {:.0f} ms, p99 {:.0f} ms, max {:.0f} ms\n",
                    cause.cause(), cause.resumes(), cause.p50_ms(), cause.p99_ms(), cause.max_ms());
  }
  return text;
}

std::string ResumeLines(std::string_view where, const v1::ResumeUse& resumes) {
  return fmt::format(
             "resumes{}: {} after a loss, {} migrated, {} given up, p50 {:.0f} ms, p99 {:.0f} ms, "
             "max {:.0f} ms; since the last token p50 {:.0f} ms, p99 {:.0f} ms, max {:.0f} ms\n",
             where, resumes.lost(), resumes.migrated(), resumes.gave_up(), resumes.p50_ms(),
             resumes.p99_ms(), resumes.max_ms(), resumes.waited().p50_ms(),
             resumes.waited().p99_ms(), resumes.waited().max_ms()) +
         CauseLines(resumes);
}

nlohmann::ordered_json Causes(const v1::ResumeUse& resumes) {
  auto json = nlohmann::ordered_json::object();
  for (const v1::ResumeCause& cause : resumes.causes()) {
    json[cause.cause()] = {{"count", cause.resumes()},
                           {"p50_ms", std::round(cause.p50_ms())},
                           {"p99_ms", std::round(cause.p99_ms())},
                           {"max_ms", std::round(cause.max_ms())}};
  }
  return json;
}

nlohmann::ordered_json ResumeJson(const v1::ResumeUse& resumes) {
  return {{"lost", resumes.lost()},
          {"migrated", resumes.migrated()},
          {"gave_up", resumes.gave_up()},
          {"p50_ms", std::round(resumes.p50_ms())},
          {"p99_ms", std::round(resumes.p99_ms())},
          {"max_ms", std::round(resumes.max_ms())},
          {"waited",
           {{"p50_ms", std::round(resumes.waited().p50_ms())},
            {"p99_ms", std::round(resumes.waited().p99_ms())},
            {"max_ms", std::round(resumes.waited().max_ms())}}},
          {"causes", Causes(resumes)}};
}

}  // namespace

std::string FaultReport::Table() const {
  const FleetReport all = All();
  const RowCount total = all.Total();
  const LossTimes& losses = all.losses;
  std::string text = fmt::format("{:<42} {:>9} {:>5} {:>6}\n", "moment, target, fault", "scheduled",
                                 "hit", "missed");
  std::vector<std::string> lines;
  for (const auto& [row, count] : all.rows) {
    lines.push_back(fmt::format("{:<12} {:<8} {:<20} {:>9} {:>5} {:>6}\n", Name(row.moment),
                                Name(row.target), Name(row.kind), count.scheduled, count.hit,
                                count.missed));
  }
  std::sort(lines.begin(), lines.end());
  for (const std::string& line : lines) text += line;
  for (const auto& [setup, report] : setups) text += SetupLine(setup, report);
  text += fmt::format("requests: {} whole, {} cancelled, {} expired, {} wrong\n", all.ok,
                      all.cancelled, all.expired, all.wrong);
  text += LossLine("killed, noticed", losses.kill_ms) +
          LossLine("stopped, noticed", losses.stop_ms) +
          LossLine("hanging, noticed", losses.freeze_ms) +
          LossLine("hanging idle, noticed", losses.idle_freeze_ms) +
          LossLine("asked to leave, ended", losses.leave_ms);
  text += ResumeLines("", Resumes(false)) + ResumeLines(", slow KV", Resumes(true));
  text += fmt::format("seed={} scheduled={} hit={} missed={} not_run={} seconds={:.0f} found={}\n",
                      options.seed, total.scheduled, total.hit, total.missed, all.not_run, seconds,
                      found.size());
  return text;
}

std::string FaultReport::Json() const {
  const FleetReport all = All();
  const v1::HandoffUse& handoffs = all.handoffs.counts;
  const LossTimes& losses = all.losses;
  nlohmann::ordered_json json;
  json["events"] = options.events;
  json["seed"] = options.seed;
  json["setups"] = options.setups;
  json["fleets"] = options.fleets;
  json["at_once"] = options.at_once;
  json["tight_share"] = options.tight_share;
  json["shm_share"] = options.shm_share;
  json["ipc_share"] = options.ipc_share;
  json["seconds"] = std::round(seconds);
  json["requests"] = {{"whole", all.ok},
                      {"cancelled", all.cancelled},
                      {"expired", all.expired},
                      {"wrong", all.wrong}};
  json["loss_noticed"] = {{"killed", Summary(losses.kill_ms)},
                          {"stopped", Summary(losses.stop_ms)},
                          {"hanging", Summary(losses.freeze_ms)},
                          {"hanging_idle", Summary(losses.idle_freeze_ms)}};
  json["left"] = Summary(losses.leave_ms);
  json["resumes"] = ResumeJson(Resumes(false));
  json["resumes_with_slow_kv"] = ResumeJson(Resumes(true));
  json["handoffs"] = {{"lives", all.handoffs.lives},
                      {"sent", handoffs.sent()},
                      {"received", handoffs.received()},
                      {"retried", handoffs.retried()},
                      {"lapsed", handoffs.lapsed()},
                      {"refused", handoffs.refused()},
                      {"corrupted_frames", handoffs.corrupted_frames()},
                      {"stale_frames", handoffs.stale_frames()},
                      {"stranger_frames", handoffs.unauthenticated_frames()},
                      {"connections_closed", handoffs.connections_closed()}};
  for (const auto& [setup, report] : setups) {
    json["fleets_of"][std::string(Name(setup))] = {
        {"not_run", report.not_run},
        {"most_sending", report.peaks.sending},
        {"most_waiting_reservations", report.peaks.waiting_reservations},
        {"most_draining_reservations", report.peaks.draining_reservations}};
    for (const auto& [row, count] : report.rows) {
      json["rows"].push_back({{"fleet", Name(setup)},
                              {"moment", Name(row.moment)},
                              {"target", Name(row.target)},
                              {"fault", Name(row.kind)},
                              {"scheduled", count.scheduled},
                              {"hit", count.hit},
                              {"missed", count.missed}});
    }
  }
  json["found"] = found;
  return json.dump(1) + "\n";
}

}  // namespace tandem
