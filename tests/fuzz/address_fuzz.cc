// Addresses of workers, as other workers and the router send them.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "transfer/fabric/endpoints.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
namespace {

void ParseAsHostPort(std::string_view text) {
  const auto place = ParseHostPort(text);
  if (!place.ok()) return;
  TANDEM_CHECK(!place->host.empty() && !place->port.empty(), "an address with an empty part");
  TANDEM_CHECK(std::stoul(place->port) <= 65535, "a port that cannot be");
  TANDEM_CHECK(text.ends_with(place->port) && text.find(place->host) != std::string_view::npos,
               "an address that was not given");
}

void ParseAsEndpoints(std::string_view text) {
  const auto endpoints = ParseEndpoints(text);
  if (!endpoints.ok()) return;
  TANDEM_CHECK(!endpoints->empty() && endpoints->size() <= kMaxEndpoints, "a list out of bounds");
  TANDEM_CHECK(ToText(*endpoints) == text, "endpoints that were not given");
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tandem::ParseAsHostPort(text);
  tandem::ParseAsEndpoints(text);
  return 0;
}
