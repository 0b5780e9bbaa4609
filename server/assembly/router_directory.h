#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/assembly/host_resolver.h"

namespace tandem {

// One value of the flag --router, parsed.
struct RouterName {
  std::string text;  // the value as it was given, for messages
  std::string host;
  uint16_t port = 0;
  bool follows_dns = false;  // whether there is a router at each address of `host`, not just one
};

// Parses a value of --router: "HOST:PORT" is one router, "dns:NAME:PORT" are the routers at all
// addresses of NAME. INVALID_ARGUMENT quotes the value.
absl::StatusOr<RouterName> ParseRouterName(std::string_view text);

// The most routers of one worker. Further addresses are ignored, which is logged.
inline constexpr size_t kMaxRouters = 64;

// The addresses of the routers of all --router values, from the latest answers of DNS. An error of
// DNS, or an answer without addresses, leaves the addresses of the answer before in use, for
// however long.
// Thread: one at a time.
class RouterDirectory {
 public:
  // `resolver` must outlive this.
  RouterDirectory(const std::vector<RouterName>& names, HostResolver& resolver);

  // Whether any name must be looked up again from time to time.
  bool follows_dns() const;
  // Looks up each name that follows DNS. Blocks as the resolver does.
  void LookUp();
  // The addresses of each --router value as HOST:PORT, sorted. A name that follows DNS has none
  // before the first LookUp.
  std::vector<std::vector<std::string>> addresses() const;

 private:
  struct Entry {
    RouterName name;
    std::vector<std::string> addresses;
    bool failed = false;  // whether the latest look-up failed or found no address
  };

  void LookUp(Entry& entry);

  std::vector<Entry> entries_;
  HostResolver& resolver_;
};

}  // namespace tandem
