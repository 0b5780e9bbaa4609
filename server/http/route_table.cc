#include "server/http/route_table.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "fmt/format.h"

namespace tandem {
namespace {

// How much of a path an error's message quotes.
constexpr size_t kMostQuoted = 200;

bool Fits(const HttpRoute& route, std::string_view path) {
  return route.match == HttpMatch::kExact ? path == route.path : path.starts_with(route.path);
}

std::vector<HttpRoute> InOrder(std::vector<HttpRoute> routes) {
  std::stable_sort(routes.begin(), routes.end(), [](const HttpRoute& a, const HttpRoute& b) {
    if (a.match != b.match) return a.match == HttpMatch::kExact;
    return a.path.size() > b.path.size();
  });
  return routes;
}

}  // namespace

RouteTable::RouteTable(std::vector<HttpRoute> routes) : routes_(InOrder(std::move(routes))) {}

void RouteTable::Serve(std::shared_ptr<HttpExchange> exchange) const {
  const HttpRequest& request = exchange->request();
  if (const HttpRoute* route = Find(request.method, request.path)) {
    try {
      route->handler(std::move(exchange));  // dropping the last reference answers 500
    } catch (const std::exception& error) {
      LogError("an HTTP handler threw route={} what={}", route->path, error.what());
    }
    return;
  }
  const std::string methods = MethodsOf(request.path);
  const std::string quoted = request.path.substr(0, kMostQuoted);
  if (request.method == "OPTIONS" && (!methods.empty() || request.path == "*")) {
    return exchange->Respond({.status = 204, .headers = {{"Allow", methods}}});
  }
  if (methods.empty()) {
    return exchange->Respond(HttpError(404, fmt::format("nothing is served at {}", quoted)));
  }
  HttpResponse response =
      HttpError(405, fmt::format("{} takes {}, not {}", quoted, methods, request.method));
  response.headers.push_back({"Allow", methods});
  exchange->Respond(std::move(response));
}

const HttpRoute* RouteTable::Find(std::string_view method, std::string_view path) const {
  for (const HttpRoute& route : routes_) {
    const bool takes = method == route.method || (method == "HEAD" && route.method == "GET");
    if (takes && Fits(route, path)) return &route;
  }
  return nullptr;
}

std::string RouteTable::MethodsOf(std::string_view path) const {
  std::string methods;
  for (const HttpRoute& route : routes_) {
    if (!Fits(route, path)) continue;
    if (methods.find(route.method) == std::string::npos) methods += route.method + ", ";
    if (route.method == "GET" && methods.find("HEAD") == std::string::npos) methods += "HEAD, ";
  }
  return methods.empty() ? methods : methods + "OPTIONS";
}

}  // namespace tandem
