#include "server/assembly/process_tls.h"

#include <string>

#include "base/log.h"
#include "base/status.h"
#include "security/certificate.h"
#include "security/grpc/server_tls.h"

namespace tandem {

absl::Status ProcessTls::Open(const TlsFiles& files) {
  RETURN_IF_ERROR(files.Check());
  if (!files.enabled()) return absl::OkStatus();
  ASSIGN_OR_RETURN(source, TlsSource::Open(files));
  ASSIGN_OR_RETURN(const CertificateInfo own, ReadCertificateInfo(source->Current()->cert_pem));
  LogInfo("tls certificate=\"{}\" identity=\"{}\"", own.subject,
          own.uris.empty() ? "none" : own.uris.front());
  return absl::OkStatus();
}

absl::Status ProcessTls::OpenForRouter(const TlsFiles& files, ClientCertificates clients) {
  if (clients == ClientCertificates::kRequired && files == TlsFiles()) {
    return InvalidArgument(
        "--tls-clients require needs --tls-cert, --tls-key and --tls-ca: without TLS nobody shows "
        "a "
        "certificate");
  }
  RETURN_IF_ERROR(Open(files));
  if (source != nullptr) guard.emplace(CallGuard::ForRouter(clients, *refusals));
  return absl::OkStatus();
}

absl::Status ProcessTls::OpenForWorker(const TlsFiles& files) {
  RETURN_IF_ERROR(Open(files));
  if (source != nullptr) guard.emplace(CallGuard::ForWorker(*refusals));
  return absl::OkStatus();
}

std::shared_ptr<grpc::ServerCredentials> ProcessTls::Credentials() const {
  return source == nullptr ? nullptr : NewServerTls(source, *guard);
}

std::shared_ptr<TlsRefusals> ProcessTls::CountedRefusals() const {
  return source == nullptr ? nullptr : refusals;
}

void ProcessTls::Report(google::protobuf::RepeatedPtrField<v1::TlsRefusal>& report) const {
  for (const TlsRefusals::Count& count : refusals->counts()) {
    v1::TlsRefusal& refusal = *report.Add();
    refusal.set_port(std::string(Name(count.port)));
    refusal.set_reason(std::string(Name(count.reason)));
    refusal.set_refused(count.refused);
  }
}

}  // namespace tandem
