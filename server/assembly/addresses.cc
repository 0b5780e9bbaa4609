#include "server/assembly/addresses.h"

#include <string>
#include <vector>

#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"
#include "server/assembly/router_directory.h"
#include "transfer/fabric/endpoints.h"

namespace tandem {
namespace {

absl::Status CheckAdvertisedData(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, ParseEndpoints(text));
  for (const Endpoint& endpoint : endpoints) {
    if (endpoint.transport != "tcp") {
      return InvalidArgument("\"{}\": only tcp goes through what stands between, as tcp:host:port",
                             endpoint.transport);
    }
    RETURN_IF_ERROR(ParseHostPort(endpoint.address).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAddresses(const WorkerOptions& options) {
  const bool is_advertised = !options.advertised_host.empty();
  const std::string& host = is_advertised ? options.advertised_host : options.host;
  const HostKind kind = KindOfHost(host);
  if (kind == HostKind::kUnspecified) {
    return InvalidArgument(
        "{} {}: nobody can connect to that: name this machine, as routers and other workers reach "
        "it, by --advertise",
        is_advertised ? "--advertise" : "--host", host);
  }
  if (absl::Status status = CheckAdvertisedData(options.advertised_data); !status.ok()) {
    return Annotate(status, "--advertise-data");
  }
  if (options.routers.size() > kMaxRouters) {
    return InvalidArgument("--router: {} values, and a worker has at most {} routers",
                           options.routers.size(), kMaxRouters);
  }
  for (const std::string& router : options.routers) {
    const absl::StatusOr<RouterName> place = ParseRouterName(router);
    if (!place.ok()) return Annotate(place.status(), "--router");
    if (kind == HostKind::kAnywhere || KindOfHost(place->host) != HostKind::kAnywhere) continue;
    LogWarn(
        "host={} is reached from this machine only, router={} may be on another: --host and "
        "--advertise say where this worker is",
        host, router);
  }
  return absl::OkStatus();
}

}  // namespace tandem
