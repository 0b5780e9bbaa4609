#pragma once

#include <cstdint>
#include <optional>

#include "server/http/http_server.h"

namespace CLI {
class App;
}

namespace tandem {

inline constexpr uint16_t kDefaultHttpPort = 8000;

// How a router serves HTTP, by `tandem router` and by `tandem up`.
struct HttpTuning {
  HttpTlsFiles tls;
  int threads = HttpServerOptions().io_threads;
  uint64_t max_body_bytes = HttpServerOptions().max_body_bytes;
  uint64_t max_total_body_bytes = HttpServerOptions().max_total_body_bytes;
  int idle_seconds = 120;
  bool no_page = false;  // for browsers, at "/"
};

void AddHttpFlags(CLI::App& app, HttpTuning& tuning);

}  // namespace tandem
