#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/admin/watchdog.h"
#include "server/http/http_message.h"

namespace tandem {

// One thing that must hold for a process to be live or ready.
struct HealthCheck {
  std::string name;                            // "engine"
  std::string problem = {};                    // for a person; empty while it holds
  std::optional<Duration> age = std::nullopt;  // since what proves it last happened
};

struct HealthReport {
  std::vector<HealthCheck> checks;

  bool ok() const;
};

// What a check of threads asks: that none of them hangs, or also that they were seen to move, which is not
// known in the first moments of a process.
enum class ThreadProof : uint8_t { kNoneHangs, kSeenToMove };

// One check for each thread that the watchdog watches, and one for the watchdog itself.
std::vector<HealthCheck> ThreadChecks(const Watchdog& watchdog, ThreadProof proof);
// One check for everything that these threads must achieve.
std::vector<HealthCheck> WorkChecks(const Watchdog& watchdog);

// 200 when all checks hold, else 503. The body is JSON and names each check:
// {"ok":false,"checks":[{"name":"step","ok":false,"age_seconds":31.2,"problem":"..."}]}. A check without
// an age has no age_seconds, one that holds has no problem.
HttpResponse HealthResponse(const HealthReport& report);

}  // namespace tandem
