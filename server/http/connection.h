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

// Serves the requests of a connection one after the other until it ends. Returns false when there
// is no room for the connection; `socket` then still belongs to the caller. `tls` is the same as in
// NewByteStream. To be called on the thread that runs `io`, which also does all later work for the
// connection.
[[nodiscard]] bool ServeConnection(boost::asio::io_context& io, ServedHttp& server, int socket,
                                   HttpTls* tls, std::string remote);

// Answers 503 on a connection that there is no room for, and then reads for a moment what its
// client sends: if the connection were closed with unread bytes, the system would reset it and the
// answer could be lost. Returns false when too many connections are being refused already; `socket`
// then still belongs to the caller. Threads and `tls` are those of ServeConnection.
[[nodiscard]] bool RefuseConnection(boost::asio::io_context& io, ServedHttp& server, int socket,
                                    HttpTls* tls);

}  // namespace tandem
