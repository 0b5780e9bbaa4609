#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/admin/watchdog.h"
#include "server/http/http_message.h"

namespace tandem {

// A condition that must hold for a process to be live or ready.
struct HealthCheck {
  std::string name;                            // such as "engine"
  std::string problem = {};                    // for a person; empty while it holds
  std::optional<Duration> age = std::nullopt;  // time since the latest event that proves it
};

struct HealthReport {
  std::vector<HealthCheck> checks;

  bool ok() const;
};

// What a check of threads demands: that none of them hangs, or also that each was seen to move,
// which is not known in the first moments of a process.
enum class ThreadProof : uint8_t { kNoneHangs, kSeenToMove };

// One check for each thread that the watchdog watches, and one for the watchdog itself.
std::vector<HealthCheck> ThreadChecks(const Watchdog& watchdog, ThreadProof proof);
// One check for each result that the watched threads must keep producing, such as steps.
std::vector<HealthCheck> WorkChecks(const Watchdog& watchdog);

// The HTTP response for a report: 200 when all checks hold, else 503. The body is JSON and names
// each check:
// {"ok":false,"checks":[{"name":"step","ok":false,"age_seconds":31.2,"problem":"..."}]}.
// A check without an age has no age_seconds, and a check that holds has no problem.
HttpResponse HealthResponse(const HealthReport& report);

}  // namespace tandem
