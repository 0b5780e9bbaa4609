#include "base/host_port.h"

#include "base/status.h"

namespace tandem {

absl::StatusOr<HostPort> ParseHostPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == address.size()) {
    return InvalidArgument("address \"{}\": must be HOST:PORT", address);
  }
  std::string_view host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty()) return InvalidArgument("address \"{}\": the host is missing", address);
  const std::string_view port = address.substr(colon + 1);
  if (port.size() > 5 || port.find_first_not_of("0123456789") != std::string_view::npos ||
      std::stoi(std::string(port)) > 65535) {
    return InvalidArgument("address \"{}\": the port must be a number up to 65535", address);
  }
  return HostPort{.host = std::string(host), .port = std::string(port)};
}

std::string HostPortText(std::string_view host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string_view::npos;
  return is_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

HostKind KindOfHost(std::string_view host) {
  if (host.empty() || host == "0.0.0.0" || host == "::") return HostKind::kUnspecified;
  const bool here = host == "localhost" || host == "::1" || host.starts_with("127.");
  return here ? HostKind::kThisHost : HostKind::kAnywhere;
}

}  // namespace tandem
