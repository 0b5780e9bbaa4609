#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "server/http/http_route.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Router::Explain.
using Explained = std::function<void(absl::StatusOr<v1::ExplainResponse>)>;
using ExplainCall = std::function<void(v1::ExplainRequest, Explained)>;

// GET /explain/{request_id} answers why that request went where it went: JSON as `tandem explain
// --json` prints it, or, where the client accepts text/plain, the text of `tandem explain`,
// ?columns=N wide. 404 without such a request.
HttpRoute ExplainRoute(ExplainCall explain);

}  // namespace tandem
