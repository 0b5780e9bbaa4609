#include "server/http/byte_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::basic_stream_socket<asio::ip::tcp, asio::io_context::executor_type>;

// The protocol matters to Asio only where it opens a socket itself.
Socket Adopt(asio::io_context& io, int fd) {
  Socket socket(io.get_executor());
  error_code error;
  socket.assign(asio::ip::tcp::v4(), fd, error);
  if (error) close(fd);  // reads and writes then fail
  return socket;
}

template <typename Stream>
void ReadSome(Stream& stream, std::span<char> buffer, std::function<void(size_t)> done) {
  stream.async_read_some(
      asio::buffer(buffer.data(), buffer.size()),
      [done = std::move(done)](const error_code& error, size_t bytes) { done(error ? 0 : bytes); });
}

template <typename Stream>
void WriteAll(Stream& stream, std::string_view bytes, ByteStream::Done done) {
  asio::async_write(stream, asio::buffer(bytes.data(), bytes.size()),
                    [done = std::move(done)](const error_code& error, size_t) { done(!error); });
}

class PlainStream final : public ByteStream {
 public:
  PlainStream(asio::io_context& io, int fd) : io_(io), socket_(Adopt(io, fd)) {}

  void Handshake(Done done) override {
    asio::post(io_, [done = std::move(done)] { done(true); });
  }
  void Read(std::span<char> buffer, std::function<void(size_t)> done) override {
    ReadSome(socket_, buffer, std::move(done));
  }
  void Write(std::string_view bytes, Done done) override {
    WriteAll(socket_, bytes, std::move(done));
  }
  size_t WriteNow(std::string_view bytes) override {
    // Not Asio's own write, which would wait for a socket that is full.
    const ssize_t sent =
        send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return static_cast<size_t>(std::max<ssize_t>(sent, 0));
  }
  void EndWriting(Done done) override {
    error_code error;
    socket_.shutdown(Socket::shutdown_send, error);
    asio::post(io_, [done = std::move(done), ok = !error] { done(ok); });
  }
  void Close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  asio::io_context& io_;
  Socket socket_;
};

class TlsStream final : public ByteStream {
 public:
  TlsStream(asio::io_context& io, int fd, asio::ssl::context& tls) : stream_(Adopt(io, fd), tls) {}

  void Handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [done = std::move(done)](const error_code& error) { done(!error); });
  }
  void Read(std::span<char> buffer, std::function<void(size_t)> done) override {
    ReadSome(stream_, buffer, std::move(done));
  }
  void Write(std::string_view bytes, Done done) override {
    WriteAll(stream_, bytes, std::move(done));
  }
  // A record of TLS is written as a whole, which may have to wait.
  size_t WriteNow(std::string_view) override { return 0; }
  void EndWriting(Done done) override {
    stream_.async_shutdown([done = std::move(done)](const error_code& error) { done(!error); });
  }
  void Close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  asio::ssl::stream<Socket> stream_;
};

}  // namespace

std::unique_ptr<ByteStream> NewByteStream(asio::io_context& io, int socket,
                                          asio::ssl::context* tls) {
  if (tls == nullptr) return std::make_unique<PlainStream>(io, socket);
  return std::make_unique<TlsStream>(io, socket, *tls);
}

absl::StatusOr<std::shared_ptr<asio::ssl::context>> LoadTls(const HttpTlsFiles& files) {
  if (files.cert.empty() && files.key.empty()) return nullptr;
  if (files.cert.empty() || files.key.empty()) {
    return InvalidArgument(
        "TLS needs a certificate and its key: give both --http-tls-cert and --http-tls-key");
  }
  auto tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  tls->set_options(asio::ssl::context::no_sslv2 | asio::ssl::context::no_sslv3 |
                       asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1,
                   error);
  // Without it OpenSSL would ask the terminal for the password of a key that has one.
  tls->set_password_callback([](size_t, asio::ssl::context::password_purpose) { return ""; },
                             error);
  tls->use_certificate_chain_file(files.cert, error);
  if (error) {
    return InvalidArgument("--http-tls-cert {}: no PEM file of certificates: {}", files.cert,
                           error.message());
  }
  tls->use_private_key_file(files.key, asio::ssl::context::pem, error);
  if (error) {
    return InvalidArgument("--http-tls-key {}: no PEM file of this certificate's key: {}",
                           files.key, error.message());
  }
  return tls;
}

}  // namespace tandem
