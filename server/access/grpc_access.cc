#include "server/access/grpc_access.h"

#include <grpcpp/server_context.h>

#include <string_view>

namespace tandem {
namespace {

std::optional<std::string_view> Metadata(const grpc::ServerContextBase& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return std::nullopt;
  return std::string_view(found->second.data(), found->second.size());
}

}  // namespace

absl::StatusOr<std::optional<Caller>> CheckCall(const grpc::ServerContextBase& context,
                                                AccessControl* access, Scope needed) {
  if (access == nullptr) return std::nullopt;
  std::optional<std::string_view> secret;
  if (const auto authorization = Metadata(context, "authorization")) {
    secret = BearerSecret(*authorization);
  }
  if (!secret) secret = Metadata(context, "x-api-key");
  return access->Check(secret, needed);
}

}  // namespace tandem
