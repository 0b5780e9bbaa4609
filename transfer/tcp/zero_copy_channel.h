#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "transfer/byte_channel.h"
#include "transfer/socket_channel.h"
#include "transfer/tcp/socket.h"

namespace tandem {

enum class ZeroCopy : uint8_t {
  kAuto,  // toward other hosts
  kOn,    // toward this host, too, where the system copies all the same
  kOff,
};

// Whether a connected socket shall send without a copy.
bool ShallZeroCopy(ZeroCopy wanted, const UniqueFd& socket);

// A connected TCP socket whose large writes the system sends from where they lie (MSG_ZEROCOPY,
// Linux 4.14), without a copy into its own memory. Small parts, as the heads of frames, are copied
// here and kept until the system is done with them, so that the caller may reuse them at once.
//
// The system says when it is done with a write, and whether it copied after all. Then, and when it
// has no room for its notes on writes under way (ENOBUFS), the channel goes on as a plain socket:
// pinning pages costs more than copying them where a copy is made anyway. zero_copy() says why.
// Thread: the loop's.
class ZeroCopyChannel final : public ByteChannel {
 public:
  explicit ZeroCopyChannel(UniqueFd socket);
  // What the system has not sent by now is dropped with the connection: the memory that it would be
  // sent from belongs to somebody else soon.
  ~ZeroCopyChannel() override;

  int fd() const override { return socket_.fd(); }
  bool wants_output() const override { return full_ || socket_.wants_output(); }
  absl::StatusOr<bool> Establish() override { return true; }
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override;
  size_t read_ahead_bytes() const override { return socket_.read_ahead_bytes(); }
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override;
  // From the first write on that the system is not done with.
  size_t held_bytes() const override {
    return pending_.empty() ? 0 : taken_ - pending_.front().begin;
  }

  ZeroCopyUse zero_copy() const override { return {.writes = writes_, .gave_up = gave_up_}; }

 private:
  struct Pending {
    std::vector<std::byte> small_parts;
    uint64_t begin = 0;  // of taken_
    bool done = false;
  };

  bool Pays(std::span<const iovec> parts) const;
  absl::StatusOr<size_t> WriteWithoutCopy(std::span<const iovec> parts);
  absl::StatusOr<size_t> WritePlainly(std::span<const iovec> parts);
  void TakeCompletions();
  void GiveUp(std::string_view why);
  void Completed(uint32_t first, uint32_t last, bool copied);

  SocketChannel socket_;
  uint64_t taken_ = 0;   // bytes of all writes
  uint64_t writes_ = 0;  // without a copy
  std::string_view gave_up_;
  bool full_ = false;            // the socket took less than the last write without a copy had
  std::deque<Pending> pending_;  // writes that the system is not done with, in their order
  uint32_t first_pending_ = 0;   // the system's number of pending_.front()
};

}  // namespace tandem
