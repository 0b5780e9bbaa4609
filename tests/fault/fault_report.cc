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

std::string CauseLines(const v1::ResumeUse& resumes) {
  std::string text;
  for (const v1::ResumeCause& cause : resumes.causes()) {
    text +=
        fmt::format("  cause {:<12} {:>5}, p50 {:.0f} ms, p99 {:.0f} ms, max {:.0f} ms\n",
                    cause.cause(), cause.resumes(), cause.p50_ms(), cause.p99_ms(), cause.max_ms());
  }
  return text;
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

}  // namespace

std::string FaultReport::Table() const {
  std::string text = fmt::format("{:<42} {:>9} {:>5} {:>6}\n", "moment, target, fault", "scheduled",
                                 "hit", "missed");
  std::vector<std::string> lines;
  for (const auto& [row, count] : rows) {
    lines.push_back(fmt::format("{:<12} {:<8} {:<20} {:>9} {:>5} {:>6}\n", Name(row.moment),
                                Name(row.target), Name(row.kind), count.scheduled, count.hit,
                                count.missed));
  }
  std::sort(lines.begin(), lines.end());
  for (const std::string& line : lines) text += line;
  text += fmt::format(
      "requests: {} whole, {} cancelled, {} expired, {} wrong\n"
      "loss noticed: killed p99 {:.0f} ms of {}, stopped p99 {:.0f} ms of {}, hanging p99 {:.0f} "
      "ms "
      "of {}\n"
      "resumes: {} after a loss, {} given up, p50 {:.0f} ms, p99 {:.0f} ms, max {:.0f} ms\n"
      "{}"
      "seed={} events={} seconds={:.0f} found={}\n",
      ok, cancelled, expired, wrong, Quantile(losses.kill_ms, 0.99), losses.kill_ms.size(),
      Quantile(losses.stop_ms, 0.99), losses.stop_ms.size(), Quantile(losses.freeze_ms, 0.99),
      losses.freeze_ms.size(), resumes.lost(), resumes.gave_up(), resumes.p50_ms(),
      resumes.p99_ms(), resumes.max_ms(), CauseLines(resumes), options.seed, options.events,
      seconds, found.size());
  return text;
}

std::string FaultReport::Json() const {
  nlohmann::ordered_json json;
  json["events"] = options.events;
  json["seed"] = options.seed;
  json["fleets"] = options.fleets;
  json["at_once"] = options.at_once;
  json["shm_share"] = options.shm_share;
  json["ipc_share"] = options.ipc_share;
  json["seconds"] = std::round(seconds);
  json["requests"] = {
      {"whole", ok}, {"cancelled", cancelled}, {"expired", expired}, {"wrong", wrong}};
  json["loss_noticed"] = {{"killed", Summary(losses.kill_ms)},
                          {"stopped", Summary(losses.stop_ms)},
                          {"hanging", Summary(losses.freeze_ms)},
                          {"hanging_idle", Summary(losses.idle_freeze_ms)}};
  json["resumes"] = {{"lost", resumes.lost()},       {"migrated", resumes.migrated()},
                     {"gave_up", resumes.gave_up()}, {"p50_ms", resumes.p50_ms()},
                     {"p99_ms", resumes.p99_ms()},   {"max_ms", resumes.max_ms()},
                     {"causes", Causes(resumes)}};
  json["handoffs"] = {{"sent", handoffs.sent()},
                      {"received", handoffs.received()},
                      {"retried", handoffs.retried()},
                      {"lapsed", handoffs.lapsed()},
                      {"refused", handoffs.refused()},
                      {"corrupted_frames", handoffs.corrupted_frames()},
                      {"stale_frames", handoffs.stale_frames()},
                      {"stranger_frames", handoffs.stranger_frames()},
                      {"connections_closed", handoffs.connections_closed()}};
  for (const auto& [row, count] : rows) {
    json["rows"].push_back({{"moment", Name(row.moment)},
                            {"target", Name(row.target)},
                            {"fault", Name(row.kind)},
                            {"scheduled", count.scheduled},
                            {"hit", count.hit},
                            {"missed", count.missed}});
  }
  json["found"] = found;
  return json.dump(1) + "\n";
}

}  // namespace tandem
