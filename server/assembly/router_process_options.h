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

// The tuning flags of a router, which `tandem router` and `tandem up` share.
struct RouterTuning {
  std::string policy = "least-loaded";
  PolicyOptions policy_options;    // all options but the content of classic_parameters
  std::string classic_parameters;  // path of a file
  std::string quality = "exact";   // KvQuality of requests that name none
  std::string evict = "none";  // token eviction of requests that name none, for ParseTokenEviction
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
  ParserNames parsers;  // the parsers of reasoning and tool calls in answers
  size_t max_workers = ClusterOptions().max_workers;
  int canary_seconds = 30;  // a route without a successful request for so long is tried; 0: never
  int lease_ms = 2500;
  int heartbeat_ms = 500;
  bool log_requests = false;
};

// The flags of a router's HTTP port, which `tandem router` and `tandem up` share.
struct HttpTuning {
  HttpTlsFiles tls;
  int threads = HttpServerOptions().io_threads;
  uint64_t max_body_bytes = HttpServerOptions().max_body_bytes;
  uint64_t max_total_body_bytes = HttpServerOptions().max_total_body_bytes;
  int idle_seconds = 120;
  bool no_page = false;  // whether the page for browsers at "/" is left out
};

struct RouterProcessOptions {
  std::string build;       // version of this binary
  std::string model_dir;   // with config.json; weights are not read
  std::string simulated;   // parameter file of a simulated device; empty: none
  std::string model_name;  // the model is served under this name; empty: the folder's name
  std::string host = "127.0.0.1";
  uint16_t port = 0;                     // gRPC port; 0: the system chooses
  std::optional<uint16_t> metrics_port;  // admin port; 0: the system chooses; nothing: none
  std::string metrics_tls = "off";       // TLS of the admin port: off, on or require
  std::optional<uint16_t> http_port;     // HTTP port; 0: the system chooses; nothing: none
  std::string access_file;               // empty: no API keys, and no limits of tenants
  TlsFiles tls;  // for all ports; for metrics_port only where metrics_tls says so
  bool require_client_certificates = false;  // from clients of gRPC and HTTP
  RouterTuning tuning;
  HttpTuning http;
  ServerLimits server;
  TraceTuning trace;
};

}  // namespace tandem
