#include "server/assembly/host_resolver.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

constexpr int kSecondsPerServer = 2;

// Limits how long getaddrinfo waits for a DNS server. The resolver's state, which getaddrinfo uses,
// belongs to the thread. resolv.conf is read each time to follow its changes, which glibc no longer
// does by itself once an option was set by hand.
void LimitWaiting() {
  if (res_init() != 0) return;  // then the limits of resolv.conf remain in effect
  _res.retrans = kSecondsPerServer;
  _res.retry = 1;
}

std::string TextOf(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  } else if (address.sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text,
              sizeof text);
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SystemResolver::Resolve(const std::string& host) {
  LimitWaiting();
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return Unavailable("host \"{}\" has no address: {}", host,
                       error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    std::string text = TextOf(*one->ai_addr);
    if (!text.empty()) addresses.push_back(std::move(text));
  }
  if (addresses.empty()) {
    return Unavailable("host \"{}\" has neither an IPv4 nor an IPv6 address", host);
  }
  return addresses;
}

}  // namespace tandem
