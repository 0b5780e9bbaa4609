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

// What secures the ports of one router or worker. It outlives their servers.
struct ProcessTls {
  const std::shared_ptr<TlsRefusals> refusals = std::make_shared<TlsRefusals>();
  std::shared_ptr<TlsSource> source;  // null: without TLS
  std::optional<CallGuard> guard;     // likewise

  // Reads the files, if there are some. INVALID_ARGUMENT names the flag or the file at fault.
  absl::Status OpenForRouter(const TlsFiles& files, ClientCertificates clients);
  absl::Status OpenForWorker(const TlsFiles& files);

  // The credentials of a gRPC server; null without TLS.
  std::shared_ptr<grpc::ServerCredentials> Credentials() const;
  // Null without TLS, where there is nothing to count.
  std::shared_ptr<TlsRefusals> CountedRefusals() const;
  const CallGuard* guard_or_null() const { return guard ? &*guard : nullptr; }
  // The refusals so far, for the report of the process.
  void Report(google::protobuf::RepeatedPtrField<v1::TlsRefusal>& report) const;

 private:
  absl::Status Open(const TlsFiles& files);
};

}  // namespace tandem
