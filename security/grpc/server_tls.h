#pragma once

#include <memory>

#include "grpcpp/security/server_credentials.h"
#include "security/grpc/call_guard.h"
#include "security/tls_source.h"

namespace tandem {

// TLS for the port of a gRPC server, whose callers `guard` judges. New connections use the files of
// `source` as they are then. A caller's certificate is verified when it shows one, and connections
// without one are refused where the guard needs one of everybody. `guard` outlives the server.
//
// gRPC's own watcher of files (FileWatcherCertificateProvider, as of 1.51) gives up the certificate in
// use before it has tried the new one, so that a half-written file would end all service. This uses
// the library's other interface for the purpose, which asks for the certificate at each handshake.
std::shared_ptr<grpc::ServerCredentials> NewServerTls(std::shared_ptr<TlsSource> source,
                                                      const CallGuard& guard);

}  // namespace tandem
