#include "transfer/media/tcp/tcp_medium.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "transfer/media/socket_channel.h"
#include "transfer/media/tcp/tls_channel.h"

namespace tandem {
namespace {

// Without this callback OpenSSL would ask for the password of a key on the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

absl::Status FileError(std::string_view what, const std::string& path) {
  return InvalidArgument("TLS: cannot use {} \"{}\": {}", what, path, TakeTlsErrors());
}

absl::Status UseFiles(SSL_CTX* context, const TlsFiles& files) {
  if (SSL_CTX_use_certificate_chain_file(context, files.cert.c_str()) != 1) {
    return FileError("certificate", files.cert);
  }
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return FileError("private key", files.key);
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    return FileError("private key", files.key);
  }
  if (SSL_CTX_load_verify_file(context, files.ca.c_str()) != 1) {
    return FileError("certificate authorities", files.ca);
  }
  STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(files.ca.c_str());
  if (names == nullptr) return FileError("certificate authorities", files.ca);
  SSL_CTX_set_client_CA_list(context, names);  // takes ownership
  return absl::OkStatus();
}

void SetRules(SSL_CTX* context) {
  TANDEM_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1, "TLS 1.3");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // Sessions are not resumed: every connection authenticates anew.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, TlsChannel::kReadAheadBytes);
  SSL_CTX_set_default_passwd_cb(context, NoPassword);
}

}  // namespace

absl::Status TlsFiles::Check() const {
  const int given = !cert.empty() + !key.empty() + !ca.empty();
  if (given == 0 || given == 3) return absl::OkStatus();
  return InvalidArgument(
      "TLS needs --kv-tls-cert, --kv-tls-key and --kv-tls-ca, or none of them: "
      "got \"{}\", \"{}\", \"{}\"",
      cert, key, ca);
}

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(const TlsFiles& files) {
  RETURN_IF_ERROR(files.Check());
  Context context(SSL_CTX_new(TLS_method()), &SSL_CTX_free);
  if (context == nullptr) return Internal("TLS: {}", TakeTlsErrors());
  SetRules(context.get());
  RETURN_IF_ERROR(UseFiles(context.get(), files));
  return std::unique_ptr<TlsContext>(new TlsContext(std::move(context)));
}

std::unique_ptr<ByteChannel> TlsContext::NewChannel(UniqueFd socket, ChannelSide side) const {
  return std::make_unique<TlsChannel>(context_.get(), std::move(socket), side, channels_);
}

size_t TlsContext::buffer_bytes() const { return channels_ * TlsChannel::kBufferBytes; }

absl::StatusOr<std::unique_ptr<TcpMedium>> TcpMedium::Open(const TcpOptions& options) {
  std::unique_ptr<TlsContext> tls;
  RETURN_IF_ERROR(options.tls.Check());
  if (options.tls.enabled()) {
    ASSIGN_OR_RETURN(tls, TlsContext::Load(options.tls));
  }
  ASSIGN_OR_RETURN(TcpListener listener, TcpListener::Open(options.listen_host, options.listen_port,
                                                           options.advertised_host));
  return std::unique_ptr<TcpMedium>(new TcpMedium(std::move(listener), std::move(tls)));
}

absl::StatusOr<std::unique_ptr<ByteChannel>> TcpMedium::NewChannel(UniqueFd socket,
                                                                   ChannelSide side) {
  if (tls_ != nullptr) return tls_->NewChannel(std::move(socket), side);
  return std::make_unique<SocketChannel>(std::move(socket));
}

}  // namespace tandem
