#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "security/tls_files.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// A blocking client of a router, for the command line and tests. Thread-safe.
class Client {
 public:
  using Timeout = std::chrono::milliseconds;
  static constexpr Timeout kNoTimeout = Timeout::max();

  // `server`: host:port. Connects at the first call, with TLS where `tls` names authorities; the
  // peer must then have the identity of a router. If the files cannot be used, every call fails
  // with INVALID_ARGUMENT.
  explicit Client(const std::string& server, const TlsFiles& tls = {});
  ~Client();

  // Waits for a connection; false when no router could be reached within `timeout`. Other calls
  // fail at once without a connection, and gRPC only proceeds with connecting while somebody waits
  // for it.
  bool WaitUntilConnected(Timeout timeout);

  // Calls `on_event` for each event until the stream has ended; ends it with CANCELLED once
  // `on_event` returns false. Errors are the router's, or UNAVAILABLE without one.
  using OnEvent = std::function<bool(const v1::GenerateResponse&)>;
  absl::Status Generate(const v1::GenerateRequest& request, Timeout timeout,
                        const OnEvent& on_event);
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request,
                                                Timeout timeout);
  absl::StatusOr<v1::GetStatusResponse> GetStatus(Timeout timeout);
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request, Timeout timeout);

 private:
  // OK, or the reason for which no call can be made.
  absl::Status Usable() const;

  struct Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace tandem
