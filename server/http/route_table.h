#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_route.h"

namespace tandem {

// Which handler takes a request. Immutable, so that all threads may share it.
class RouteTable {
 public:
  explicit RouteTable(std::vector<HttpRoute> routes);

  // Calls the handler of the request, or answers it where there is none. Thread: any; the handler's.
  void Serve(std::shared_ptr<HttpExchange> exchange) const;

 private:
  const HttpRoute* Find(std::string_view method, std::string_view path) const;
  // "GET, HEAD, OPTIONS" of a path; empty where no method has it.
  std::string MethodsOf(std::string_view path) const;

  // Exact paths first, then the longer prefixes.
  const std::vector<HttpRoute> routes_;
};

}  // namespace tandem
