#include "transfer/fabric/endpoints.h"

#include <algorithm>

#include "base/status.h"

namespace tandem {
namespace {

bool IsWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
}

bool IsVisible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  if (text.size() > kMaxEndpointBytes) {
    return InvalidArgument("an endpoint has {} bytes; at most {} are taken", text.size(),
                           kMaxEndpointBytes);
  }
  if (!IsVisible(text)) return InvalidArgument("an endpoint holds bytes that no address has");
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || !IsWord(text.substr(0, colon)) ||
      colon + 1 == text.size()) {
    return InvalidArgument("endpoint \"{}\" is no TRANSPORT:ADDRESS", text);
  }
  return Endpoint{.transport = std::string(text.substr(0, colon)),
                  .address = std::string(text.substr(colon + 1))};
}

}  // namespace

absl::StatusOr<std::vector<Endpoint>> ParseEndpoints(std::string_view text) {
  std::vector<Endpoint> endpoints;
  while (true) {
    const size_t space = text.find(' ');
    ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text.substr(0, space)));
    if (std::ranges::find(endpoints, endpoint.transport, &Endpoint::transport) != endpoints.end()) {
      return InvalidArgument("transport {} comes twice", endpoint.transport);
    }
    endpoints.push_back(std::move(endpoint));
    if (space == std::string_view::npos) return endpoints;
    if (endpoints.size() == kMaxEndpoints) {
      return InvalidArgument("more than {} endpoints", kMaxEndpoints);
    }
    text.remove_prefix(space + 1);
  }
}

std::string ToText(std::span<const Endpoint> endpoints) {
  std::string text;
  for (const Endpoint& endpoint : endpoints) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", endpoint.transport, endpoint.address);
  }
  return text;
}

}  // namespace tandem
