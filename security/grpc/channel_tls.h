#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "security/peer_check.h"
#include "security/tls_source.h"

namespace tandem {

// Credentials for a channel to a server that must show `server`, whatever address it has. `material`:
// with a certificate and its key, or the authorities alone; null: without TLS, and nothing is checked.
//
// A channel keeps what it was made of. Who keeps channels for long makes them anew when
// TlsSource::Current has something else to give.
std::shared_ptr<grpc::ChannelCredentials> NewChannelCredentials(const TlsMaterial* material,
                                                                const NeededIdentity& server);

// The same for a client of a router, whose files are read once. Without TLS where `files` name no
// authorities. INVALID_ARGUMENT names the flag or the file that cannot be used.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentials(const TlsFiles& files);

// What `source` has now; null without a source.
inline std::shared_ptr<const TlsMaterial> CurrentOf(const std::shared_ptr<TlsSource>& source) {
  return source != nullptr ? source->Current() : nullptr;
}

}  // namespace tandem
