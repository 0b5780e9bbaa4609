#include "server/admin/http_metrics.h"

#include "fmt/format.h"

namespace tandem {
namespace {

struct Sample {
  const char* name;
  const char* type;
  const char* help;
  double value;
};

}  // namespace

std::string HttpMetrics(const HttpUse& use) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  const Sample samples[] = {
      {"tandem_http_connections", "gauge", "Open connections to the HTTP port",
       static_cast<double>(use.open)},
      {"tandem_http_connections_limit", "gauge", "Beyond it, waiting connections are closed",
       static_cast<double>(use.limit)},
      {"tandem_http_requests_total", "counter", "Requests that came whole", number(use.requests)},
      {"tandem_http_connections_refused_total", "counter",
       "Connections closed at once, because all others were being answered", number(use.refused)},
      {"tandem_http_connections_evicted_total", "counter",
       "Connections that waited for a request and were closed to make room", number(use.evicted)},
  };
  std::string page;
  for (const auto& [name, type, help, value] : samples) {
    page += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
  }
  return page;
}

}  // namespace tandem
