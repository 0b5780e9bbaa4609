#pragma once

#include <cstdint>
#include <string>

#include "server/http/http_exchange.h"

namespace tandem {

enum class HttpMatch : uint8_t { kExact, kPrefix };

// Requests whose method and path fit go to the handler: an exact path first, then the longest
// prefix. A route for GET also serves HEAD. A path that only other methods have gets 405, others
// 404. OPTIONS is answered with the methods of the path.
struct HttpRoute {
  std::string method;  // "GET"
  std::string path;    // "/v1/models", or as a prefix "/v1/models/"
  HttpHandler handler;
  HttpMatch match = HttpMatch::kExact;
};

}  // namespace tandem
