#include "server/check/check_ports.h"

#include <algorithm>
#include <span>

#include "base/host_port.h"
#include "fmt/format.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
namespace {

// The first of `earlier` that has the same port of the same address. Different addresses of a
// machine may have the same port, but "0.0.0.0" stands for all addresses.
const WantedPort* FindSame(std::span<const WantedPort> earlier, const WantedPort& wanted) {
  const auto is_same = [&](const WantedPort& one) {
    return one.port == wanted.port &&
           (one.host == wanted.host || KindOfHost(one.host) == HostKind::kUnspecified ||
            KindOfHost(wanted.host) == HostKind::kUnspecified);
  };
  const auto found = std::ranges::find_if(earlier, is_same);
  return found == earlier.end() ? nullptr : &*found;
}

}  // namespace

void CheckPorts(const std::vector<WantedPort>& ports, PortUse use, Findings& findings) {
  for (size_t i = 0; i < ports.size(); ++i) {
    const WantedPort& one = ports[i];
    if (one.port == 0) continue;
    if (const WantedPort* same = FindSame(std::span(ports).first(i), one)) {
      findings.Add(Severity::kError, one.part,
                   fmt::format("{} {} is also {} of {}: give one of them another port", one.flag,
                               one.port, same->flag, same->part));
      continue;
    }
    if (use == PortUse::kNotAsked) continue;
    const auto listening = ListenEverywhere(one.host, one.port);
    if (listening.ok()) continue;
    findings.Add(Severity::kError, one.part,
                 fmt::format("{} {}: {}: choose another port, stop what listens there, or give "
                             "--skip-ports where that is this deployment",
                             one.flag, one.port, std::string(listening.status().message())));
  }
}

}  // namespace tandem
