#include "server/http/byte_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace tandem {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::basic_stream_socket<asio::ip::tcp, asio::io_context::executor_type>;

// Wraps a connected socket. The protocol that it is assigned with does not matter, because Asio
// uses it only when it opens a socket itself.
Socket Adopt(asio::io_context& io, int fd) {
  Socket socket(io.get_executor());
  error_code error;
  socket.assign(asio::ip::tcp::v4(), fd, error);
  if (error) close(fd);  // all reads and writes will fail
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
  absl::Status refusal() const override { return absl::OkStatus(); }
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

// Wraps an OpenSSL context for Asio, which takes over one reference to it.
asio::ssl::context Adopt(const std::shared_ptr<SSL_CTX>& context) {
  SSL_CTX_up_ref(context.get());
  return asio::ssl::context(context.get());
}

class TlsStream final : public ByteStream {
 public:
  TlsStream(asio::io_context& io, int fd, HttpTls& tls)
      : tls_(tls), context_(Adopt(tls.Context())), stream_(Adopt(io, fd), context_) {}

  void Handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [this, done = std::move(done)](const error_code& error) {
                              OnHandshake(error);
                              done(!error);
                            });
  }
  absl::Status refusal() const override { return refusal_; }
  void Read(std::span<char> buffer, std::function<void(size_t)> done) override {
    ReadSome(stream_, buffer, std::move(done));
  }
  void Write(std::string_view bytes, Done done) override {
    WriteAll(stream_, bytes, std::move(done));
  }
  // Always 0: a TLS record is written as a whole, which may have to wait.
  size_t WriteNow(std::string_view) override { return 0; }
  void EndWriting(Done done) override {
    stream_.async_shutdown([done = std::move(done)](const error_code& error) { done(!error); });
  }
  void Close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  void OnHandshake(const error_code& error) {
    if (!error) {
      refusal_ = tls_.CheckClient(stream_.native_handle());
    } else if (error.category() == asio::error::get_ssl_category()) {
      tls_.CountFailure(error.message());
    }
  }

  HttpTls& tls_;
  asio::ssl::context context_;
  asio::ssl::stream<Socket> stream_;
  absl::Status refusal_;
};

}  // namespace

std::unique_ptr<ByteStream> NewByteStream(asio::io_context& io, int socket, HttpTls* tls) {
  if (tls == nullptr) return std::make_unique<PlainStream>(io, socket);
  return std::make_unique<TlsStream>(io, socket, *tls);
}

}  // namespace tandem
