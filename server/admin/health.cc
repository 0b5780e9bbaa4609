#include "server/admin/health.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/json.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

std::vector<HealthCheck> ChecksOf(const Watchdog& watchdog, bool threads) {
  std::vector<HealthCheck> checks;
  const Duration since_look = watchdog.since_look();
  for (PulseState& state : watchdog.states()) {
    if (state.is_thread != threads) continue;
    checks.push_back({.name = std::move(state.name),
                      .problem = std::move(state.problem),
                      .age = state.without_progress + since_look});
  }
  return checks;
}

}  // namespace

bool HealthReport::ok() const {
  return std::ranges::all_of(checks, [](const HealthCheck& one) { return one.problem.empty(); });
}

std::vector<HealthCheck> ThreadChecks(const Watchdog& watchdog, ThreadProof proof) {
  std::vector<HealthCheck> checks = ChecksOf(watchdog, true);
  const bool is_unproven = proof == ThreadProof::kSeenToMove && checks.empty();
  HealthCheck own{.name = "watchdog", .age = watchdog.since_look()};
  if (*own.age > watchdog.options().patience) {
    own.problem = fmt::format("the watchdog has not looked for {:.0f} s", Seconds(*own.age));
  }
  if (is_unproven) own.problem = "no thread was seen to move yet";
  checks.push_back(std::move(own));
  return checks;
}

std::vector<HealthCheck> WorkChecks(const Watchdog& watchdog) { return ChecksOf(watchdog, false); }

HttpResponse HealthResponse(const HealthReport& report) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const HealthCheck& check : report.checks) {
    nlohmann::ordered_json one = {{"name", check.name}, {"ok", check.problem.empty()}};
    if (check.age) one["age_seconds"] = std::round(1e3 * Seconds(*check.age)) / 1e3;
    if (!check.problem.empty()) one["problem"] = check.problem;
    checks.push_back(std::move(one));
  }
  const nlohmann::ordered_json body = {{"ok", report.ok()}, {"checks", std::move(checks)}};
  return {.status = report.ok() ? 200 : 503, .body = JsonText(body) + "\n"};
}

}  // namespace tandem
