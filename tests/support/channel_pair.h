#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "transfer/media/medium.h"

namespace tandem {

// Both ends of a connection, bytes can flow.
struct ChannelPair {
  std::unique_ptr<ByteChannel> connected;
  std::unique_ptr<ByteChannel> accepted;
};

// Fails the test and gives nulls when that does not work.
ChannelPair ConnectPair(Medium& from, Medium& to);

// The next connection that a peer makes. Fails the test and gives null when none comes.
std::unique_ptr<ByteChannel> AwaitConnection(Medium& medium);

// Whether an event comes for what the channel waits for. At once: without waiting.
bool HasEventAtOnce(const ByteChannel& channel);
// Patiently; false only when something hangs.
bool AwaitEvent(const ByteChannel& channel);
bool AwaitEventOfAny(std::span<const ByteChannel* const> channels);

// One end of a connection in a test: sends so many bytes of an endless seeded pattern and checks
// those that come against another, in pieces of random sizes.
class PatternFlow {
 public:
  struct Plan {
    uint64_t send_seed = 0;
    size_t send_bytes = 0;
    uint64_t receive_seed = 0;
    size_t receive_bytes = 0;
    size_t max_piece = 300'000;
  };

  PatternFlow(ByteChannel& channel, const Plan& plan);

  // Reads and writes until the channel has nothing and takes nothing; whether anything moved.
  bool Advance();
  // Advances and waits for events until done() or a failure. For a thread of its own.
  void RunToEnd();

  // Everything came, and everything went: the channel holds nothing back.
  bool done() const {
    return sent_ == plan_.send_bytes && received_ == plan_.receive_bytes &&
           (plan_.send_bytes == 0 || !channel_.wants_output());
  }
  // The status of the first call that failed, or the place of the first wrong byte.
  const absl::Status& failure() const { return failure_; }
  size_t sent() const { return sent_; }
  size_t received() const { return received_; }
  // Events that RunToEnd waited for.
  size_t waits() const { return waits_; }

  // Each alone: how many bytes moved in one call.
  size_t ReadOnce();
  size_t WriteOnce();

 private:
  size_t FlushChannel();
  void Fail(const absl::Status& status);

  ByteChannel& channel_;
  const Plan plan_;
  std::mt19937_64 random_;
  std::vector<std::byte> scratch_;
  size_t sent_ = 0;
  size_t received_ = 0;
  size_t waits_ = 0;
  absl::Status failure_;
};

}  // namespace tandem
