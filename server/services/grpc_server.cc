#include "server/services/grpc_server.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status.h"
#include "grpc/support/log.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "security/tls_refusals.h"
#include "server/services/connection_acceptor.h"

namespace tandem {
namespace {

using Connections = grpc::experimental::ExternalConnectionAcceptor;

// What gRPC says before it aborts because the system gave it no thread for its calls.
constexpr std::string_view kNoThread = "assertion failed: worker->created()";

// What gRPC logs, for debugging, when a client's handshake has failed. There is no other sign of
// it.
constexpr std::string_view kHandshakeFailed = "Handshaking failed: ";
// The beginning of the error that gRPC logs for a failed handshake, in addition. It is also logged
// for connections that this process makes, whose callers get it in their status.
constexpr std::string_view kFatalHandshake = "Handshake failed with";

std::atomic<bool> says_everything = false;  // gRPC logs debug messages, for failed handshakes

class HandshakeFailures {
 public:
  void CountIn(std::shared_ptr<TlsRefusals> refusals) {
    absl::MutexLock lock(&mutex_);
    refusals_ = std::move(refusals);
  }
  // Counts one failure. `why`: gRPC's text, up to the place in its sources where the error arose.
  void Count(std::string_view why) {
    why = why.substr(0, why.find(" {"));
    const std::shared_ptr<TlsRefusals> refusals = Refusals();
    if (refusals == nullptr) return;
    const TlsRefusalReason reason = ReasonOfHandshakeError(why);
    // A connection that ends before its peer has sent anything is not counted: it is a probe of the
    // port, or a client that left.
    const bool is_tls = why.find("SSL") != std::string_view::npos;
    if (is_tls || reason != TlsRefusalReason::kHandshake) {
      refusals->Add(TlsPort::kGrpc, reason, why);
    }
  }

 private:
  std::shared_ptr<TlsRefusals> Refusals() {
    absl::MutexLock lock(&mutex_);
    return refusals_;
  }

  absl::Mutex mutex_;
  std::shared_ptr<TlsRefusals> refusals_ ABSL_GUARDED_BY(mutex_);
};

// The failed handshakes of all servers in the process, because gRPC has one log for the process.
HandshakeFailures& FailedHandshakes() {
  static auto* const failures = new HandshakeFailures;
  return *failures;
}

LogLevel LevelOf(gpr_log_severity severity, std::string_view message) {
  if (says_everything && message.starts_with(kFatalHandshake)) return LogLevel::kDebug;
  if (severity == GPR_LOG_SEVERITY_ERROR) return LogLevel::kWarn;
  return severity == GPR_LOG_SEVERITY_INFO && !says_everything ? LogLevel::kInfo : LogLevel::kDebug;
}

void LogOfGrpc(gpr_log_func_args* line) {
  const std::string_view message = line->message;
  if (message == kNoThread) {
    WriteToStderr(
        "error: RESOURCE_EXHAUSTED: the system gives this process no more threads: raise its "
        "limits (ulimit -v, ulimit -u, the container's)\n");
    _exit(1);
  }
  if (message.starts_with(kHandshakeFailed)) {
    return FailedHandshakes().Count(message.substr(kHandshakeFailed.size()));
  }
  Log(LevelOf(line->severity, message), "grpc {}:{} {}", line->file, line->line, message);
}

int Milliseconds(int32_t seconds) {
  return static_cast<int>(std::min<int64_t>(int64_t{seconds} * 1000, INT32_MAX));
}

// Seconds in milliseconds; 0 becomes the largest number, which gRPC takes for never.
int MillisecondsOrNever(int32_t seconds) {
  return seconds == 0 ? INT32_MAX : Milliseconds(seconds);
}

void SetLimits(const ServerLimits& limits, grpc::ServerBuilder& builder) {
  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_streams},
      {GRPC_ARG_MAX_METADATA_SIZE, limits.max_metadata_bytes},
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(limits.handshake_seconds)},
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS, MillisecondsOrNever(limits.idle_seconds)},
      {GRPC_ARG_MAX_CONNECTION_AGE_MS, MillisecondsOrNever(limits.age_seconds)},
      {GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, Milliseconds(limits.age_grace_seconds)},
      {GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(limits.keepalive_seconds)},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(limits.keepalive_timeout_seconds)},
      // Clients may ping also while no call is in progress.
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
       Milliseconds(limits.min_ping_interval_seconds)},
  };
  for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
  grpc::ResourceQuota quota;
  quota.Resize(static_cast<size_t>(limits.memory_mebibytes) << 20);
  builder.SetResourceQuota(quota);
}

// Sets switches of gRPC that hold for the whole process. To be called before a server is built.
void SetUpPlugins() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    // By default gRPC writes its log to stderr, and blocks while the reader of stderr does.
    gpr_set_log_function(&LogOfGrpc);
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(ConnectionAcceptor& acceptor,
                                                              const GrpcServerOptions& options) {
  SetUpPlugins();
  grpc::ServerBuilder builder;
  const std::shared_ptr<Connections> connections =
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          options.credentials != nullptr ? options.credentials : grpc::InsecureServerCredentials());
  if (options.tls_refusals != nullptr) {
    FailedHandshakes().CountIn(options.tls_refusals);
    says_everything = true;
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);
  }
  SetLimits(options.limits, builder);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  builder.SetMaxSendMessageSize(-1);
  for (const NamedService& one : options.services) builder.RegisterService(one.service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return Internal("gRPC could not start a server");
  for (const NamedService& one : options.services) {
    server->GetHealthCheckService()->SetServingStatus(one.name, true);
  }
  acceptor.Start([connections](int connection) {
    Connections::NewConnectionParameters parameters;
    parameters.fd = connection;
    connections->HandleNewConnection(&parameters);
  });
  return std::unique_ptr<GrpcServer>(new GrpcServer(acceptor, std::move(server)));
}

GrpcServer::GrpcServer(ConnectionAcceptor& acceptor, std::unique_ptr<grpc::Server> server)
    : acceptor_(acceptor), server_(std::move(server)) {}

GrpcServer::~GrpcServer() { Shutdown(std::chrono::steady_clock::now()); }

void GrpcServer::SetHealth(Health health) {
  server_->GetHealthCheckService()->SetServingStatus(health == Health::kServing);
}

void GrpcServer::SetHealth(const std::string& service, Health health) {
  server_->GetHealthCheckService()->SetServingStatus(service, health == Health::kServing);
}

void GrpcServer::Shutdown(TimePoint deadline) {
  acceptor_.Stop();
  const auto left = deadline - std::chrono::steady_clock::now();
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
}

}  // namespace tandem
