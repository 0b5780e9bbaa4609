#include "server/access/http_access.h"

#include <string_view>
#include <utility>

namespace tandem {
namespace {

Scope ScopeOf(std::string_view path) {
  const bool for_admins =
      path == "/metrics" || path == "/status.json" || path.starts_with("/explain");
  return for_admins ? Scope::kAdmin : Scope::kGenerate;
}

std::optional<std::string_view> SecretOf(const HttpRequest& request) {
  if (const auto authorization = request.Header("authorization")) {
    if (const auto secret = BearerSecret(*authorization)) return secret;
  }
  return request.Header("x-api-key");
}

}  // namespace

std::function<std::optional<HttpResponse>(HttpRequest&)> HttpAuthorizer(
    AccessControl& access, std::set<std::string> open_paths) {
  return [&access,
          open_paths = std::move(open_paths)](HttpRequest& request) -> std::optional<HttpResponse> {
    const bool only_reads = request.method == "GET" || request.method == "HEAD";
    if (only_reads && open_paths.contains(request.path)) return std::nullopt;
    const auto caller = access.Check(SecretOf(request), ScopeOf(request.path));
    if (caller.ok()) {
      if (*caller) request.tenant = (*caller)->tenant;
      return std::nullopt;
    }
    const bool unknown = absl::IsUnauthenticated(caller.status());
    HttpResponse response = HttpError(unknown ? 401 : 403, std::string(caller.status().message()),
                                      unknown ? "invalid_api_key" : "insufficient_scope");
    if (unknown) response.headers.push_back({"WWW-Authenticate", "Bearer"});
    return response;
  };
}

}  // namespace tandem
