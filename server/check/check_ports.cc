#include "server/check/check_ports.h"

#include <map>

#include "base/host_port.h"
#include "fmt/format.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {

void CheckPorts(const std::vector<WantedPort>& ports, PortUse use, Findings& findings) {
  std::map<uint16_t, const WantedPort*> wanted;
  for (const WantedPort& one : ports) {
    if (one.port == 0) continue;
    // Different addresses of a machine may have the same port, but "0.0.0.0" is all of them.
    const auto [other, is_first] = wanted.emplace(one.port, &one);
    const bool is_same_host = other->second->host == one.host ||
                              KindOfHost(one.host) == HostKind::kUnspecified ||
                              KindOfHost(other->second->host) == HostKind::kUnspecified;
    if (!is_first && is_same_host) {
      findings.Add(Severity::kError, one.part,
                   fmt::format("{} {} is also {} of {}: give one of them another port", one.flag,
                               one.port, other->second->flag, other->second->part));
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
