#pragma once

#include <string>

#include "server/http/http_server.h"

namespace tandem {

// What a router's HTTP port has done, in Prometheus' text format.
std::string HttpMetrics(const HttpUse& use);

}  // namespace tandem
