#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/assembly/host_resolver.h"

namespace tandem {

// One value of --router.
struct RouterName {
  std::string text;  // as it was given, for messages
  std::string host;
  uint16_t port = 0;
  bool follows_dns = false;  // one router at each address of `host`, and not just one router
};

// "HOST:PORT" is one router, "dns:NAME:PORT" are the routers at all addresses of NAME.
// INVALID_ARGUMENT quotes what was given.
absl::StatusOr<RouterName> ParseRouterName(std::string_view text);

// A worker has at most so many routers. More addresses are ignored, which the log says.
inline constexpr size_t kMaxRouters = 64;

// Where the routers of all --router values are, as DNS answered last. An error of DNS, and an answer
// without addresses, leaves the addresses of the answer before, for however long.
// Thread: one at a time.
class RouterDirectory {
 public:
  // `resolver` outlives this.
  RouterDirectory(const std::vector<RouterName>& names, HostResolver& resolver);

  // Whether any name must be looked up again from time to time.
  bool follows_dns() const;
  // Asks the resolver for each name that follows DNS. Blocks as the resolver does.
  void LookUp();
  // For each --router value its addresses as HOST:PORT, sorted. Before the first LookUp a name that
  // follows DNS has none.
  std::vector<std::vector<std::string>> addresses() const;

 private:
  struct Entry {
    RouterName name;
    std::vector<std::string> addresses;
    bool failed = false;  // whether the last answer was an error
  };

  void LookUp(Entry& entry);

  std::vector<Entry> entries_;
  HostResolver& resolver_;
};

}  // namespace tandem
