#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "server/http/http_route.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Receives the answer of Router::Explain.
using Explained = std::function<void(absl::StatusOr<v1::ExplainResponse>)>;
using ExplainCall = std::function<void(v1::ExplainRequest, Explained)>;

// The route GET /explain/{request_id}, which answers why that request was placed where it was: JSON
// as `tandem explain --json` prints it, or, where the client accepts text/plain, the text of
// `tandem explain` in ?columns=N columns. 404 when there is no such request.
HttpRoute ExplainRoute(ExplainCall explain);

}  // namespace tandem
