#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_route.h"

namespace tandem {

// Finds the handler for a request. Immutable, so that all threads may share it.
class RouteTable {
 public:
  explicit RouteTable(std::vector<HttpRoute> routes);

  // Calls the handler of the request, or answers 404 or 405 where there is none. May be called on
  // any thread; the handler runs on it.
  void Serve(std::shared_ptr<HttpExchange> exchange) const;

 private:
  const HttpRoute* Find(std::string_view method, std::string_view path) const;
  // "GET, HEAD, OPTIONS" of a path; empty where no method has it.
  std::string MethodsOf(std::string_view path) const;

  // In the order of preference: exact paths first, then longer prefixes before shorter ones.
  const std::vector<HttpRoute> routes_;
};

}  // namespace tandem
