#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "security/tls_refusals.h"
#include "transfer/wire/byte_channel.h"

struct ssl_st;      // OpenSSL's SSL
struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tandem {

// TLS over a connected socket.
//
// Write encrypts into a buffer of this channel and sends from there, so a caller whose Write took
// nothing may come back with other bytes, which OpenSSL itself does not allow.
//
// In TLS 1.3 the connecting side finishes its handshake before the other side has checked its
// certificate. So the accepting side sends one byte, which says whether it is satisfied and for which
// Establish of the connecting side waits: a refused worker learns the reason there. Both sides want
// the identity of a worker in the other's certificate.
// Thread: the loop's.
class TlsChannel final : public ByteChannel {
 public:
  // The largest record; TLS cuts what it carries into records.
  static constexpr size_t kRecordBytes = 16 << 10;
  // The most encrypted bytes that may wait for the socket; a record that was begun may exceed it.
  static constexpr size_t kOutBytes = 128 << 10;
  // How much OpenSSL reads with one system call: several records.
  static constexpr size_t kReadAheadBytes = 128 << 10;
  // The most memory of one connection: kOutBytes with the records that may exceed it, and OpenSSL's
  // own buffers, one for reading and one for a record that it writes.
  static constexpr size_t kBufferBytes =
      kOutBytes + 2 * kRecordBytes + kReadAheadBytes + 2 * kRecordBytes;

  // The counters of the channel's owner; they outlive the channel.
  struct Watchers {
    std::atomic<size_t>& alive;       // counts the present channels
    TlsRefusals* refusals = nullptr;  // counts refused peers; null: they are not counted
  };
  TlsChannel(ssl_ctx_st* context, UniqueFd socket, ChannelSide side, Watchers watchers);
  ~TlsChannel() override;

  int fd() const override { return socket_.get(); }
  bool wants_output() const override { return out_sent_ < out_.size(); }
  absl::StatusOr<bool> Establish() override;
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override;
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override;

 private:
  enum class State : uint8_t { kHandshake, kWelcome, kOpen, kOver };

  absl::StatusOr<bool> Handshake();
  absl::StatusOr<bool> Welcome();
  // Whether the peer's certificate is that of a worker.
  absl::Status CheckPeer() const;
  // Reads into `part`. Returns the number of bytes that came; 0 when none have come yet.
  absl::StatusOr<size_t> ReadPart(std::span<std::byte> part);
  // Encrypts as much of `part` as the buffer has room for, and returns how much.
  absl::StatusOr<size_t> Encrypt(std::span<const std::byte> part);
  // Sends as much of the buffer as the socket takes.
  absl::Status Flush();
  // The error of the latest OpenSSL call, which returned `result`; OK when it must be repeated
  // later.
  absl::Status Outcome(int result);
  // The error of a handshake that has failed. Counts the refused peer if this side refused it.
  absl::Status HandshakeError();

  const UniqueFd socket_;
  const ChannelSide side_;
  const Watchers watchers_;
  State state_ = State::kHandshake;
  std::vector<std::byte> out_;  // encrypted bytes for the socket
  size_t out_sent_ = 0;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;
};

}  // namespace tandem
