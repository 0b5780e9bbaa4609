#pragma once

#include <string>

#include "grpcpp/support/status.h"
#include "security/tls_files.h"

namespace tandem {

// A gRPC call of one message there and one back, by bytes, for services whose .proto files are not
// ours. Fails the test when the call does.
std::string CallByBytes(const std::string& address, const std::string& method,
                        const std::string& bytes);

// How a call ends that sends these bytes on a new connection, with the certificate of `files` where
// these name an authority, and else without TLS. The server may have any identity. Streams of
// answers are refused alike, but may not be read by this.
grpc::Status StatusOfCall(const std::string& address, const TlsFiles& files,
                          const std::string& method, const std::string& bytes = "");

}  // namespace tandem
