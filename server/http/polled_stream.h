#pragma once

// clang-format off: awaitable.hpp of Boost 1.74 uses std::exchange without its header
#include <utility>
// clang-format on

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "server/http/byte_stream.h"

namespace tandem {

// The reads, writes and deadlines of a connection as state that can be polled: one coroutine looks
// at it whenever something has changed. To be used on the thread of the I/O context only.
class PolledStream : public std::enable_shared_from_this<PolledStream> {
 public:
  enum class Write : uint8_t { kIdle, kBusy, kDone, kFailed };

  // How much is read at once while a body is expected.
  static constexpr size_t kBodyReadBytes = 64 << 10;
  // A receive buffer whose capacity has grown beyond this is freed once it is empty.
  static constexpr size_t kKeptCapacity = 64 << 10;

  PolledStream(boost::asio::io_context& io, std::unique_ptr<ByteStream> stream)
      : stream_(std::move(stream)), timer_(io) {}

  // Waits until something has changed since the last wait, or the deadline.
  boost::asio::awaitable<void> Wait(TimePoint deadline);
  void Notify();

  // The bytes that came and were not consumed.
  const std::string& received() const { return received_; }
  void Consume(size_t bytes);
  // The client sends nothing more, or is gone.
  bool has_ended() const { return has_ended_; }
  // The server wants the connection to end.
  bool is_stopped() const { return is_stopped_; }
  void Stop();
  // Clears is_stopped, so that a last answer can be written on a connection that was stopped.
  void Resume() { is_stopped_ = false; }

  // Throws away what was received and not consumed, and all that is still to come.
  void DropInput();
  bool drops_input() const { return drops_input_; }

  // Starts a read of at most `most` bytes. Does nothing while a read is in progress.
  void StartRead(size_t most);

  // No write may be in progress. `owner` keeps the bytes alive. Events are short, so that the
  // system nearly always takes them at once: the write is then done on return, which saves a turn
  // of the I/O context.
  void StartWrite(std::string_view bytes, std::shared_ptr<const void> owner);
  // The state of the latest write. A write that is done or has failed is reported once; after that
  // the state is kIdle.
  Write TakeWrite() {
    return write_ == Write::kBusy ? write_ : std::exchange(write_, Write::kIdle);
  }
  // Writes `bytes`, which the write keeps alive until it ends or the connection is closed. False
  // where they were not written within `patience`.
  boost::asio::awaitable<bool> WriteAll(const std::shared_ptr<const std::string>& bytes,
                                        Duration patience);

  boost::asio::awaitable<bool> Handshake(Duration patience);
  absl::Status refusal() const { return stream_->refusal(); }

  // Tells the client that nothing more comes, and waits until it has ended, too. A client that is
  // refused may still be sending; if the connection were closed at once, it would lose the answer.
  // So a bounded amount of what it sends is thrown away, for as long as it does not pause for
  // `patience`.
  boost::asio::awaitable<void> End(Duration patience);
  void Close() { stream_->Close(); }

 private:
  void OnWritten(bool ok);
  boost::asio::awaitable<bool> AwaitWrite(TimePoint deadline);

  const std::unique_ptr<ByteStream> stream_;
  boost::asio::steady_timer timer_;
  bool changed_ = false;
  bool reading_ = false;
  bool has_ended_ = false;
  bool is_stopped_ = false;
  bool drops_input_ = false;
  Write write_ = Write::kIdle;
  std::vector<char> buffer_;  // the pending read writes to it
  std::string received_;
};

}  // namespace tandem
