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
#include "server/http/refusal_counts.h"
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
  std::atomic<int> refusing = 0;  // connections that RefuseConnection has taken over
  std::atomic<bool> draining = false;
  std::atomic<uint64_t> requests = 0;
  RefusalCounts refusals;
};

// Serves the requests of a connection one after the other until it ends. False when there is no room
// for it, and `socket` is still the caller's. `tls` as of NewByteStream. Thread: the one that runs `io`,
// which also does all that follows.
[[nodiscard]] bool ServeConnection(boost::asio::io_context& io, ServedHttp& server, int socket,
                                   HttpTls* tls, std::string remote);

// Answers 503 on a connection that there is no room for, and reads for a moment what its client sends,
// so that the answer arrives: if it were closed with unread bytes, the system would reset it. False when
// too many are being refused already, and `socket` is still the caller's. Otherwise as ServeConnection.
[[nodiscard]] bool RefuseConnection(boost::asio::io_context& io, ServedHttp& server, int socket,
                                    HttpTls* tls);

}  // namespace tandem
