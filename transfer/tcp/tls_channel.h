#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transfer/byte_channel.h"
#include "transfer/tcp/socket.h"

struct bio_st;      // OpenSSL's BIO
struct ssl_st;      // SSL
struct ssl_ctx_st;  // SSL_CTX

namespace tandem {

enum class TlsSide : uint8_t { kConnected, kAccepted };

// What OpenSSL noted of the errors on this thread, and forgets.
std::string TakeTlsErrors();

// TLS over a connected socket.
//
// Bytes that Write takes are encrypted at once into a buffer of this channel, and sent from there:
// a caller whose Write took nothing is free to come back with other bytes, which OpenSSL does not
// allow by itself.
//
// In TLS 1.3 the side that connects is done before the other has looked at its certificate. So the
// accepting side says one byte once it is content, and Establish of the other waits for that:
// whoever is refused hears it there, with the reason.
// Thread: the loop's.
class TlsChannel final : public ByteChannel {
 public:
  // TLS cuts what it carries into records of at most this many bytes.
  static constexpr size_t kRecordBytes = 16 << 10;
  // Encrypted bytes that wait for the socket; a record that was begun may go beyond.
  static constexpr size_t kOutBytes = 128 << 10;
  // What OpenSSL reads at once: several records come with one call of the system.
  static constexpr size_t kReadAheadBytes = 128 << 10;
  // The most that one connection has under way: the buffer above with what may go beyond, and
  // OpenSSL's own, one for reading and one for a record that it writes.
  static constexpr size_t kBufferBytes =
      kOutBytes + 2 * kRecordBytes + kReadAheadBytes + 2 * kRecordBytes;

  // `alive` counts the channels that there are; it outlives this one.
  TlsChannel(ssl_ctx_st* context, UniqueFd socket, TlsSide side, std::atomic<size_t>& alive);
  ~TlsChannel() override;
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  int fd() const override { return socket_.get(); }
  bool wants_output() const override { return out_sent_ < out_.size(); }
  absl::StatusOr<bool> Establish() override;
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override;
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override;

 private:
  enum class State : uint8_t { kHandshake, kWelcome, kOpen, kOver };
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  friend struct TlsOutput;  // OpenSSL's end of out_

  absl::StatusOr<bool> Handshake();
  absl::StatusOr<bool> Welcome();
  // How many bytes came, 0 when there are none for now.
  absl::StatusOr<size_t> ReadPart(std::span<std::byte> part);
  // Encrypts as much of `part` as the buffer has room for.
  absl::StatusOr<size_t> Encrypt(std::span<const std::byte> part);
  // Sends what the socket takes of the buffer.
  absl::Status Flush();
  // What the last call of OpenSSL, which returned `result`, came to; OK: to be tried again later.
  absl::Status Outcome(int result);
  absl::Status HandshakeError();

  const UniqueFd socket_;
  const TlsSide side_;
  std::atomic<size_t>& alive_;
  State state_ = State::kHandshake;
  std::vector<std::byte> out_;  // encrypted
  size_t out_sent_ = 0;
  std::unique_ptr<ssl_st, Free> ssl_;
};

}  // namespace tandem
