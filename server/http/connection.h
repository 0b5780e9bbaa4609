#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/http/body_budget.h"
#include "server/http/byte_stream.h"
#include "server/http/connection_book.h"
#include "server/http/http_options.h"
#include "server/http/http_route.h"
#include "server/http/route_table.h"

namespace tandem {

// What the connections of one server share; it outlives them.
struct ServedHttp {
  ServedHttp(const HttpServerOptions& options, std::vector<HttpRoute> routes, int max_connections)
      : options(options),
        routes(std::move(routes)),
        book(max_connections),
        bodies(std::make_shared<BodyBudget>(
            std::max(options.max_total_body_bytes, options.max_body_bytes))) {}

  const HttpServerOptions options;
  const RouteTable routes;
  ConnectionBook book;
  const std::shared_ptr<BodyBudget> bodies;
  std::atomic<bool> draining = false;
  std::atomic<uint64_t> requests = 0;
};

// Serves the requests of a connection one after the other until it ends. False when there is no room
// for it, and `socket` is still the caller's. `tls` as of NewByteStream. Thread: the one that runs `io`,
// which also does all that follows.
[[nodiscard]] bool ServeConnection(boost::asio::io_context& io, ServedHttp& server, int socket,
                                   boost::asio::ssl::context* tls, std::string remote);

}  // namespace tandem
