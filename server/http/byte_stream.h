#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/http/http_tls.h"

namespace boost::asio {
class io_context;
}

namespace tandem {

// The bytes of one connection, plain or over TLS. At most one read and one write may be in
// progress. Each `done` is called on the thread of the I/O context, never from within the call, and
// also after Close; it must keep this stream and the buffer alive until then.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  using Done = std::function<void(bool ok)>;
  virtual void Handshake(Done done) = 0;
  // After the handshake: an error if the client's certificate does not permit it to send requests.
  virtual absl::Status refusal() const = 0;
  // `done` gets 0 bytes when the other side has ended, or is gone.
  virtual void Read(std::span<char> buffer, std::function<void(size_t bytes)> done) = 0;
  virtual void Write(std::string_view bytes, Done done) = 0;
  // Sends what the system takes without waiting and returns how many bytes that was. A failure
  // shows at the Write of the rest. No write may be in progress.
  virtual size_t WriteNow(std::string_view bytes) = 0;
  // Tells the other side that nothing more comes.
  virtual void EndWriting(Done done) = 0;
  virtual void Close() = 0;
};

// Takes over the descriptor `socket`. `tls` outlives it; null: in the clear.
std::unique_ptr<ByteStream> NewByteStream(boost::asio::io_context& io, int socket, HttpTls* tls);

}  // namespace tandem
