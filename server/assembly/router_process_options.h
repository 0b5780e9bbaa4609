#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "model/answer/answer_markup.h"
#include "router/cluster/cluster.h"
#include "router/policy/policy_options.h"
#include "router/request/tokenize_pool.h"
#include "router/router.h"
#include "security/tls_files.h"
#include "server/http/http_options.h"
#include "server/services/server_limits.h"
#include "server/tracing/trace_tuning.h"

namespace tandem {

// What may be tuned of a router, by `tandem router` and by `tandem up`.
struct RouterTuning {
  std::string policy = "least-loaded";
  PolicyOptions policy_options;    // without the content of classic_parameters
  std::string classic_parameters;  // a file
  std::string quality = "exact";   // of requests that say none: a name of KvQuality
  std::string evict = "none";      // likewise: a text that ParseTokenEviction takes
  std::optional<double> ttft_slo_ms;
  std::optional<double> tpot_slo_ms;
  std::string output_predictor = "adaptive";
  uint64_t prefix_index_bytes = 256 << 20;
  std::string session_affinity = "on";
  int32_t max_in_flight = 1024;
  std::string shed = "deadline";
  int32_t max_choices = 64;
  int tokenize_threads = TokenizePoolOptions().threads;
  uint64_t tokenize_queue_bytes = TokenizePoolOptions().max_long_text_bytes;
  uint64_t max_message_bytes = 4 << 20;
  uint64_t stream_buffer_bytes = 256 << 10;
  uint64_t answer_buffer_bytes = 256 << 20;
  int max_request_seconds = 600;
  int32_t max_resumes = ResumeLimits().max_resumes;
  ParserNames parsers;  // of what answers are searched for
  size_t max_workers = ClusterOptions().max_workers;
  int canary_seconds = 30;  // without a request that passed a route; 0: none is sent
  int lease_ms = 2500;
  int heartbeat_ms = 500;
  bool log_requests = false;
};

// How a router serves HTTP, by `tandem router` and by `tandem up`.
struct HttpTuning {
  HttpTlsFiles tls;
  int threads = HttpServerOptions().io_threads;
  uint64_t max_body_bytes = HttpServerOptions().max_body_bytes;
  uint64_t max_total_body_bytes = HttpServerOptions().max_total_body_bytes;
  int idle_seconds = 120;
  bool no_page = false;  // for browsers, at "/"
};

struct RouterProcessOptions {
  std::string build;       // version of this binary
  std::string model_dir;   // with config.json; weights are not read
  std::string simulated;   // parameter file of a simulated device; empty: none
  std::string model_name;  // served under this name; empty: the folder's
  std::string host = "127.0.0.1";
  uint16_t port = 0;                     // of gRPC; 0: the system chooses
  std::optional<uint16_t> metrics_port;  // of the admin port; 0: likewise; nothing: none
  std::string metrics_tls = "off";       // of that port: off, on or require
  std::optional<uint16_t> http_port;     // likewise
  std::string access_file;               // empty: no API keys, and no limits of tenants
  TlsFiles tls;  // of all ports but, unless metrics_tls says so, metrics_port
  bool require_client_certificates = false;  // of clients of gRPC and HTTP
  RouterTuning tuning;
  HttpTuning http;
  ServerLimits server;
  TraceTuning trace;
};

}  // namespace tandem
