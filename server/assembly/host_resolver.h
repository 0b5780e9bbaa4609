#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Finds the addresses of a host. An interface, so that tests answer in place of DNS.
class HostResolver {
 public:
  virtual ~HostResolver() = default;
  // All IPv4 and IPv6 addresses of `host` as text, in any order and with repetitions; never an
  // empty list. UNAVAILABLE says why there are none. Blocks; called by one thread at a time.
  virtual absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host) = 0;
};

// Resolves hosts as /etc/nsswitch.conf says: /etc/hosts, then DNS. A DNS server that does not
// answer is waited for 2 s and not asked again, so that a worker which is leaving is not held up
// for long.
class SystemResolver final : public HostResolver {
 public:
  absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host) override;
};

}  // namespace tandem
