#include "tests/support/hostile_peer.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr int kPatienceSeconds = 60;
constexpr char kHttp2[] = "\x02h2";

sockaddr_in LoopbackAddress(uint16_t port, int last_number) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + static_cast<uint32_t>(last_number));
  return address;
}

UniqueFd ConnectFrom(int source, uint16_t port) {
  UniqueFd made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(made.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof(yes));
  const sockaddr_in from = LoopbackAddress(0, source);
  EXPECT_EQ(bind(made.get(), reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0)
      << ErrnoMessage(errno);
  const sockaddr_in to = LoopbackAddress(port, 1);
  EXPECT_EQ(connect(made.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0)
      << ErrnoMessage(errno);
  // A server that does not answer must not keep the test for ever.
  const timeval limit{.tv_sec = kPatienceSeconds};
  setsockopt(made.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(made.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  return made;
}

std::unique_ptr<SSL_CTX, OpensslFree<&SSL_CTX_free>> ContextOf(const TlsFiles& files) {
  std::unique_ptr<SSL_CTX, OpensslFree<&SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
  if (!files.cert.empty()) {
    EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context.get(), files.cert.c_str()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM), 1);
  }
  return context;
}

}  // namespace

HostilePeer::HostilePeer(uint16_t port, int source) : socket_(ConnectFrom(source, port)) {}

HostilePeer::HostilePeer(uint16_t port, const TlsFiles& files, std::string_view protocol)
    : socket_(ConnectFrom(1, port)), context_(ContextOf(files)), ssl_(SSL_new(context_.get())) {
  // OpenSSL writes without MSG_NOSIGNAL.
  signal(SIGPIPE, SIG_IGN);
  if (protocol == "h2") {
    SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(kHttp2),
                        sizeof(kHttp2) - 1);
  }
  SSL_set_fd(ssl_.get(), socket_.get());
  if (SSL_connect(ssl_.get()) != 1) socket_ = UniqueFd();
}

bool HostilePeer::Send(std::string_view bytes) {
  while (socket_.valid() && !bytes.empty()) {
    const ssize_t sent = ssl_ != nullptr
                             ? SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()))
                             : send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return socket_.valid();
}

bool HostilePeer::Fill() {
  if (!socket_.valid()) return false;
  char bytes[16 << 10];
  const ssize_t count = ssl_ != nullptr ? SSL_read(ssl_.get(), bytes, sizeof(bytes))
                                        : recv(socket_.get(), bytes, sizeof(bytes), 0);
  if (count <= 0) {
    EXPECT_FALSE(count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        << "no end within a minute";
    return false;
  }
  received_.append(bytes, static_cast<size_t>(count));
  return true;
}

std::string HostilePeer::ReceiveAll() {
  while (Fill()) {
  }
  return std::exchange(received_, {});
}

std::string HostilePeer::ReceiveUntil(const std::function<bool(std::string_view)>& done) {
  while (!done(received_) && Fill()) {
  }
  return received_;
}

bool HostilePeer::HasEnded() {
  pollfd readable = {.fd = socket_.get(), .events = POLLIN};
  while (socket_.valid() && poll(&readable, 1, 0) > 0) {
    if (!Fill()) socket_ = UniqueFd();
    received_.clear();
  }
  return !socket_.valid();
}

void HostilePeer::Reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket_ = UniqueFd();
}

std::string TlsClientHello() {
  const auto context = ContextOf({});
  const std::unique_ptr<SSL, OpensslFree<&SSL_free>> ssl(SSL_new(context.get()));
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), sent);  // takes both over
  SSL_set_alpn_protos(ssl.get(), reinterpret_cast<const unsigned char*>(kHttp2),
                      sizeof(kHttp2) - 1);
  EXPECT_NE(SSL_connect(ssl.get()), 1);
  char* bytes = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(sent, &bytes));
  return std::string(bytes, size);
}

}  // namespace tandem
