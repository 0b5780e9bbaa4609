#pragma once

#include <memory>
#include <string>

#include "bench/serving/backend.h"
#include "bench/serving/goodput.h"
#include "security/tls_files.h"

namespace tandem::loadgen {

struct GrpcBackendOptions {
  std::string server;          // host:port of a router
  std::string route = "auto";  // or unified, disaggregated
  RequestOptions request;
  // Every request says those of TTFT and TPOT, so that the router can keep to them.
  Objectives objectives;
  TlsFiles tls;  // of a client; no authorities: without TLS
};

// Tandem's own service, tandem.v1.Inference.
std::unique_ptr<Backend> NewGrpcBackend(GrpcBackendOptions options);

}  // namespace tandem::loadgen
