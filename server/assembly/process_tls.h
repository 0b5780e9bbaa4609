#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "security/grpc/call_guard.h"
#include "security/tls_refusals.h"
#include "security/tls_source.h"
#include "tandem/v1/telemetry.pb.h"

namespace grpc {
class ServerCredentials;
}

namespace tandem {

// The TLS settings of the ports of one router or worker. They outlive the ports' servers.
struct ProcessTls {
  const std::shared_ptr<TlsRefusals> refusals = std::make_shared<TlsRefusals>();
  std::shared_ptr<TlsSource> source;  // null: without TLS
  std::optional<CallGuard> guard;     // nothing: without TLS

  // Reads the certificates and keys in `files`, if any are named. INVALID_ARGUMENT names the flag
  // or the file at fault.
  absl::Status OpenForRouter(const TlsFiles& files, ClientCertificates clients);
  absl::Status OpenForWorker(const TlsFiles& files);

  // The credentials of a gRPC server; null without TLS.
  std::shared_ptr<grpc::ServerCredentials> Credentials() const;
  // The counter of refused connections; null without TLS, where none are refused.
  std::shared_ptr<TlsRefusals> CountedRefusals() const;
  const CallGuard* guard_or_null() const { return guard ? &*guard : nullptr; }
  // Adds the refusals so far to the report of the process.
  void Report(google::protobuf::RepeatedPtrField<v1::TlsRefusal>& report) const;

 private:
  absl::Status Open(const TlsFiles& files);
};

}  // namespace tandem
