#include "transfer/media/tcp/tls_channel.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "security/certificate.h"
#include "security/openssl_parts.h"
#include "security/peer_check.h"

namespace tandem {
namespace {

constexpr char kWelcomeByte = 'W';
constexpr char kRefusedByte = 'R';  // the peer's certificate is not that of a worker

using OutBuffer = std::vector<std::byte>;

int AppendToBuffer(BIO* bio, const char* data, int size) {
  auto& out = *static_cast<OutBuffer*>(BIO_get_data(bio));
  const auto bytes = std::as_bytes(std::span(data, static_cast<size_t>(size)));
  out.insert(out.end(), bytes.begin(), bytes.end());
  return size;
}

long ControlBuffer(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// A BIO that appends what OpenSSL writes to `out`.
BIO* NewBufferBio(OutBuffer* out) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "tandem buffer");
    TANDEM_CHECK(made != nullptr, "a method of OpenSSL");
    BIO_meth_set_write(made, AppendToBuffer);
    BIO_meth_set_ctrl(made, ControlBuffer);
    return made;
  }();
  BIO* bio = BIO_new(method);
  TANDEM_CHECK(bio != nullptr, "a buffer for OpenSSL");
  BIO_set_data(bio, out);
  BIO_set_init(bio, 1);
  return bio;
}

// Whether OpenSSL's error reason means that the peer does not speak TLS at all.
bool IsNotTls(int reason) {
  return reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
         reason == SSL_R_HTTPS_PROXY_REQUEST || reason == SSL_R_UNEXPECTED_MESSAGE ||
         reason == SSL_R_PACKET_LENGTH_TOO_LONG || reason == SSL_R_RECORD_LENGTH_MISMATCH;
}

// Whether the peer sent the error reason as an alert: OpenSSL numbers those from
// SSL_AD_REASON_OFFSET on.
bool IsAlert(int reason) { return reason >= SSL_AD_REASON_OFFSET; }

}  // namespace

TlsChannel::TlsChannel(ssl_ctx_st* context, UniqueFd socket, ChannelSide side, Watchers watchers)
    : socket_(std::move(socket)),
      side_(side),
      watchers_(watchers),
      ssl_(SSL_new(context), &SSL_free) {
  ++watchers_.alive;
  TANDEM_CHECK(ssl_ != nullptr, "a TLS connection of OpenSSL");
  out_.reserve(kOutBytes + 2 * kRecordBytes);
  BIO* const input = BIO_new_socket(socket_.get(), BIO_NOCLOSE);
  TANDEM_CHECK(input != nullptr, "a socket for OpenSSL");
  SSL_set0_rbio(ssl_.get(), input);
  SSL_set0_wbio(ssl_.get(), NewBufferBio(&out_));
  side_ == ChannelSide::kConnected ? SSL_set_connect_state(ssl_.get())
                                   : SSL_set_accept_state(ssl_.get());
}

TlsChannel::~TlsChannel() {
  --watchers_.alive;
  if (state_ != State::kOpen) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());  // tells the peer without waiting for its answer
  [[maybe_unused]] const absl::Status flushed = Flush();
  ERR_clear_error();
}

absl::StatusOr<bool> TlsChannel::Establish() {
  if (state_ == State::kHandshake) {
    ASSIGN_OR_RETURN(const bool shaken, Handshake());
    if (!shaken) return false;
    state_ = State::kWelcome;
  }
  if (state_ == State::kWelcome) {
    const absl::StatusOr<bool> welcome = Welcome();
    if (!welcome.ok()) state_ = State::kOver;
    if (!welcome.ok() || !*welcome) return welcome;
    state_ = State::kOpen;
  }
  if (state_ != State::kOpen) return Unavailable("the TLS connection is over");
  return true;
}

absl::StatusOr<bool> TlsChannel::Handshake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  const absl::Status outcome = result == 1 ? absl::OkStatus() : Outcome(result);
  const absl::Status flushed = Flush();  // also sends the peer an alert
  RETURN_IF_ERROR(outcome);
  RETURN_IF_ERROR(flushed);
  return result == 1;
}

absl::Status TlsChannel::CheckPeer() const {
  return PeerCheck(TlsPort::kKv, watchers_.refusals)
      .Check(PeerCertificateOf(ssl_.get()), {.roles = {IdentityRole::kWorker}}, "KV over tcp");
}

absl::StatusOr<bool> TlsChannel::Welcome() {
  if (side_ == ChannelSide::kAccepted) {
    const absl::Status peer = CheckPeer();
    const char byte = peer.ok() ? kWelcomeByte : kRefusedByte;
    ASSIGN_OR_RETURN(const size_t taken, Encrypt(std::as_bytes(std::span(&byte, 1))));
    TANDEM_CHECK(taken == 1, "room for one byte");
    RETURN_IF_ERROR(Flush());
    RETURN_IF_ERROR(peer);
    return true;
  }
  char byte = kRefusedByte;
  ASSIGN_OR_RETURN(const size_t count, ReadPart(std::as_writable_bytes(std::span(&byte, 1))));
  if (count == 0) return false;
  if (byte == kRefusedByte) {
    return PermissionDenied(
        "TLS: the peer refused this worker: its certificate (--tls-cert or --kv-tls-cert) needs "
        "the identity {}worker/<name>",
        kIdentityPrefix);
  }
  if (byte != kWelcomeByte) {
    return FailedPrecondition("TLS: the peer greets with byte {}: is it a worker of this version?",
                              static_cast<int>(byte));
  }
  RETURN_IF_ERROR(CheckPeer());
  return true;
}

absl::StatusOr<size_t> TlsChannel::Read(std::span<const iovec> parts) {
  size_t total = 0;
  for (const iovec& part : parts) {
    std::span<std::byte> rest(static_cast<std::byte*>(part.iov_base), part.iov_len);
    while (!rest.empty()) {
      auto count = ReadPart(rest);
      if (!count.ok() && total == 0) return count;
      if (!count.ok() || *count == 0) return total;
      total += *count;
      rest = rest.subspan(*count);
    }
  }
  return total;
}

absl::StatusOr<size_t> TlsChannel::ReadPart(std::span<std::byte> part) {
  ERR_clear_error();
  size_t count = 0;
  const int result = SSL_read_ex(ssl_.get(), part.data(), part.size(), &count);
  if (result == 1) return count;
  RETURN_IF_ERROR(Outcome(result));
  // Reading may make OpenSSL write, for example when the peer changes its keys.
  if (wants_output()) RETURN_IF_ERROR(Flush());
  return 0;
}

absl::StatusOr<size_t> TlsChannel::Write(std::span<const iovec> parts) {
  size_t total = 0;
  for (const iovec& part : parts) {
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(part.iov_base),
                                           part.iov_len);
    for (size_t taken = 0; taken < bytes.size();) {
      ASSIGN_OR_RETURN(const size_t count, Encrypt(bytes.subspan(taken)));
      if (count == 0) {
        RETURN_IF_ERROR(Flush());
        if (wants_output()) return total;
      }
      taken += count;
      total += count;
    }
  }
  RETURN_IF_ERROR(Flush());
  return total;
}

absl::StatusOr<size_t> TlsChannel::Encrypt(std::span<const std::byte> part) {
  size_t total = 0;
  while (total < part.size() && out_.size() < kOutBytes) {
    const auto record = part.subspan(total, std::min(kRecordBytes, part.size() - total));
    ERR_clear_error();
    size_t count = 0;
    const int result = SSL_write_ex(ssl_.get(), record.data(), record.size(), &count);
    if (result != 1) {
      RETURN_IF_ERROR(Outcome(result));
      return Internal("TLS wants to wait before it writes to memory");
    }
    total += count;
  }
  return total;
}

absl::Status TlsChannel::Flush() {
  while (wants_output()) {
    const auto rest = std::span(out_).subspan(out_sent_);
    const ssize_t count = send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return absl::OkStatus();
    if (count < 0) return Unavailable("connection lost: {}", ErrnoMessage(errno));
    out_sent_ += static_cast<size_t>(count);
  }
  out_.clear();
  out_sent_ = 0;
  return absl::OkStatus();
}

absl::Status TlsChannel::Outcome(int result) {
  const int system_error = errno;
  const bool shaking_hands = state_ == State::kHandshake || state_ == State::kWelcome;
  const auto over = [&](std::string_view why) {
    state_ = State::kOver;
    return !shaking_hands ? Unavailable("connection lost: {}", why)
                          : Unavailable(
                                "connection lost in the TLS handshake: {}; has the peer the "
                                "--tls or --kv-tls options, too?",
                                why);
  };
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return absl::OkStatus();
    case SSL_ERROR_ZERO_RETURN:
      return over("the peer closed it");
    case SSL_ERROR_SYSCALL:
      return over(system_error != 0 ? ErrnoMessage(system_error) : "the peer closed it");
    default:
      break;
  }
  if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    return over("the peer closed it");
  }
  if (!shaking_hands) return over(TakeTlsErrors());
  state_ = State::kOver;
  return HandshakeError();
}

absl::Status TlsChannel::HandshakeError() {
  const int reason = ERR_GET_REASON(ERR_peek_error());
  const std::string errors = TakeTlsErrors();
  const long verified = SSL_get_verify_result(ssl_.get());
  const auto count = [this](TlsRefusalReason kind, const std::string& why) {
    if (watchers_.refusals != nullptr) watchers_.refusals->Add(TlsPort::kKv, kind, why);
  };
  if (verified != X509_V_OK) {
    const std::string why = X509_verify_cert_error_string(verified);
    count(TlsRefusalReason::kUntrusted, why);
    return FailedPrecondition(
        "TLS: the peer's certificate is not trusted: {}: it must lead to an authority of "
        "--tls-ca or --kv-tls-ca",
        why);
  }
  if (IsAlert(reason)) {
    return FailedPrecondition(
        "TLS: the peer refused this worker: {}: its --tls-ca or --kv-tls-ca must have the "
        "authority that signed this worker's certificate",
        errors);
  }
  count(ReasonOfHandshakeError(errors), errors);
  if (IsNotTls(reason)) {
    return FailedPrecondition(
        "TLS: the peer does not speak TLS: {}: give the --tls or --kv-tls options to all workers "
        "or to none",
        errors);
  }
  return FailedPrecondition("TLS handshake failed: {}", errors);
}

}  // namespace tandem
