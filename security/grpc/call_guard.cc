#include "security/grpc/call_guard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "grpcpp/security/auth_context.h"

namespace tandem {
namespace {

constexpr std::string_view kClusterMethods = "/tandem.v1.Cluster/";

// For messages and the log: callers choose the text.
std::string_view ShownPath(std::string_view path) {
  constexpr size_t kMostBytes = 128;
  const bool can_be_shown = path.size() <= kMostBytes && std::ranges::all_of(path, [](char c) {
                              return absl::ascii_isgraph(static_cast<unsigned char>(c));
                            });
  return can_be_shown ? path : "(no method's name)";
}

}  // namespace

CallGuard::CallGuard(Need cluster, Need others, TlsRefusals& refusals)
    : cluster_needs_(std::move(cluster)),
      others_need_(std::move(others)),
      check_(TlsPort::kGrpc, &refusals) {}

CallGuard CallGuard::ForRouter(ClientCertificates clients, TlsRefusals& refusals) {
  const Need worker = {.has_identity = true, .identity = {.roles = {IdentityRole::kWorker}}};
  Need client;
  if (clients == ClientCertificates::kRequired) {
    client = {.has_identity = true,
              .identity = {.roles = {IdentityRole::kClient, IdentityRole::kAdmin}}};
  }
  return CallGuard(worker, client, refusals);
}

CallGuard CallGuard::ForWorker(TlsRefusals& refusals) {
  const Need router = {.has_identity = true, .identity = {.roles = {IdentityRole::kRouter}}};
  return CallGuard(router, router, refusals);
}

absl::Status CallGuard::CheckCall(std::string_view path, const PeerCertificate& caller) const {
  // A call without a path is none of a client's.
  const bool is_cluster = path.empty() || path.starts_with(kClusterMethods);
  const Need& need = is_cluster ? cluster_needs_ : others_need_;
  return need.has_identity ? check_.Check(caller, need.identity, ShownPath(path))
                           : absl::OkStatus();
}

absl::Status CallGuard::CheckWorkerName(const grpc::ServerContextBase& call,
                                        const std::string& name, std::string_view what) const {
  const std::shared_ptr<const grpc::AuthContext> context = call.auth_context();
  PeerCertificate caller;
  if (context != nullptr) {
    caller.shown = context->IsPeerAuthenticated();
    for (const grpc::string_ref& uri : context->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
      caller.uris.emplace_back(uri.data(), uri.size());
    }
  }
  return check_.Check(caller, {.roles = {IdentityRole::kWorker}, .name = name}, what);
}

PeerCertificate CallerOf(const grpc_auth_context* context) {
  PeerCertificate caller;
  caller.shown = grpc_auth_context_peer_is_authenticated(context) != 0;
  const auto for_each = [context](const char* name, const auto& take) {
    grpc_auth_property_iterator iterator = grpc_auth_context_find_properties_by_name(context, name);
    while (const grpc_auth_property* found = grpc_auth_property_iterator_next(&iterator)) {
      take(std::string(found->value, found->value_length));
    }
  };
  for_each(GRPC_PEER_URI_PROPERTY_NAME,
           [&caller](std::string uri) { caller.uris.push_back(std::move(uri)); });
  for_each(GRPC_X509_CN_PROPERTY_NAME,
           [&caller](const std::string& name) { caller.subject = "CN=" + name; });
  return caller;
}

}  // namespace tandem
