#include "server/commands/client.h"

#include "base/api_key.h"
#include "base/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "router/client/grpc_worker_client.h"
#include "router/client/retry_metadata.h"
#include "security/grpc/channel_tls.h"
#include "server/services/message_limit.h"
#include "server/services/status_mapping.h"
#include "tandem/v1/inference.grpc.pb.h"

namespace tandem {
namespace {

// Gives the call its deadline, and the API key of the environment.
void Prepare(grpc::ClientContext& context, Client::Timeout timeout) {
  const std::string authorization = AuthorizationFromEnvironment();
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  if (timeout == Client::kNoTimeout) return;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
}

}  // namespace

struct Client::Connection {
  std::string server;
  absl::Status usable;
  bool uses_tls = false;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Inference::Stub> stub;

  // An error of the router is returned as it is; where no router answered, the address is added.
  absl::Status Explain(const grpc::Status& status, const grpc::ClientContext& context) const {
    if (status.ok()) return absl::OkStatus();
    absl::Status mapped = ToAbslStatus(status);
    TakeRetryAfter(context, mapped);
    const bool answered = context.GetServerTrailingMetadata().count(kOriginKey) > 0;
    if (const auto too_large = ReadTooLarge(status.error_message()); too_large && !answered) {
      return *too_large;
    }
    const bool network = !answered && status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                         status.error_message().find("connect") != std::string::npos;
    if (!network) return mapped;
    // A port that speaks TLS closes a plain connection in this way.
    const bool may_want_tls =
        !uses_tls && status.error_message().find("Socket closed") != std::string::npos;
    return Annotate(mapped,
                    fmt::format("no router at {}{}", server,
                                may_want_tls ? ", or one that uses TLS: then give --tls-ca" : ""));
  }
};

Client::Client(const std::string& server, const TlsFiles& tls)
    : connection_(std::make_unique<Connection>()) {
  const absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials =
      ClientCredentials(tls);
  connection_->usable = credentials.status();
  connection_->uses_tls = tls.enabled_for_client();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // Each client object has its own connection, on which tests rely.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  connection_->server = server;
  connection_->channel = grpc::CreateCustomChannel(
      server, credentials.ok() ? *credentials : grpc::InsecureChannelCredentials(), arguments);
  connection_->stub = v1::Inference::NewStub(connection_->channel);
}

Client::~Client() = default;

absl::Status Client::Usable() const { return connection_->usable; }

bool Client::WaitUntilConnected(Timeout timeout) {
  if (!Usable().ok()) return false;
  return connection_->channel->WaitForConnected(std::chrono::system_clock::now() + timeout);
}

absl::Status Client::Generate(const v1::GenerateRequest& request, Timeout timeout,
                              const OnEvent& on_event) {
  RETURN_IF_ERROR(Usable());
  grpc::ClientContext context;
  Prepare(context, timeout);
  auto reader = connection_->stub->Generate(&context, request);
  v1::GenerateResponse event;
  while (reader->Read(&event)) {
    if (!on_event(event)) {
      context.TryCancel();
      break;
    }
  }
  while (reader->Read(&event)) {
  }
  return connection_->Explain(reader->Finish(), context);
}

absl::StatusOr<v1::TokenizeResponse> Client::Tokenize(const v1::TokenizeRequest& request,
                                                      Timeout timeout) {
  RETURN_IF_ERROR(Usable());
  grpc::ClientContext context;
  Prepare(context, timeout);
  v1::TokenizeResponse response;
  RETURN_IF_ERROR(
      connection_->Explain(connection_->stub->Tokenize(&context, request, &response), context));
  return response;
}

absl::StatusOr<v1::GetStatusResponse> Client::GetStatus(Timeout timeout) {
  RETURN_IF_ERROR(Usable());
  grpc::ClientContext context;
  Prepare(context, timeout);
  v1::GetStatusResponse response;
  RETURN_IF_ERROR(
      connection_->Explain(connection_->stub->GetStatus(&context, {}, &response), context));
  return response;
}

absl::StatusOr<v1::ExplainResponse> Client::Explain(const v1::ExplainRequest& request,
                                                    Timeout timeout) {
  RETURN_IF_ERROR(Usable());
  grpc::ClientContext context;
  Prepare(context, timeout);
  v1::ExplainResponse response;
  RETURN_IF_ERROR(
      connection_->Explain(connection_->stub->Explain(&context, request, &response), context));
  return response;
}

}  // namespace tandem
