#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "base/clock.h"
#include "transfer/nccl/communicator.h"

namespace tandem {

// The sends and receives of one connection, in order. One is
//   waiting   until NCCL has put the one before on the stream (it takes one at a time)
//   begun     until NCCL has put it there: then an event is recorded behind it
//   on stream until the event has come, or its deadline: the rest of it is the device's and the
//             peer's, of whose death NCCL does not tell
// The first error ends everything: failure().
// Thread: the loop's. No call waits.
class NcclOperations {
 public:
  // An operation may take `grace`, and as long as its bytes take at a fifth of the rate of late.
  // The first, for which NCCL connects the two GPUs, may take `first_grace`.
  NcclOperations(NcclConnection connection, std::chrono::milliseconds grace,
                 std::chrono::milliseconds first_grace);

  // The slot is the operation's until it is done.
  void Send(NcclSlot slot, size_t bytes);
  void Receive(std::span<std::byte> place);
  // Goes on with what can go on.
  void Advance();
  // Ends everything for another reason.
  void Fail(const absl::Status& status);

  bool empty() const { return operations_.empty(); }
  size_t size() const { return operations_.size(); }
  const absl::Status& failure() const { return failure_; }
  // With what the operations still hold; this is over then.
  NcclConnection TakeConnection();

 private:
  struct Operation {
    enum class State { kWaiting, kBegun, kOnStream };

    NcclSlot slot;               // of a send
    std::span<std::byte> bytes;  // in the slot, or where they are to come
    State state = State::kWaiting;
    std::unique_ptr<Event> event;
    TimePoint began{};  // when it became the first
  };

  void Add(Operation operation);
  absl::Status AdvanceFirst();
  absl::Status AdvanceCalls();
  absl::Status Begin(Operation& operation);
  absl::Status CheckDeadline() const;
  Duration Allowed(size_t bytes) const;

  const std::chrono::milliseconds grace_;
  const std::chrono::milliseconds first_grace_;
  NcclConnection connection_;
  std::deque<Operation> operations_;  // the first is the one that the stream is at
  bool any_done_ = false;
  double bytes_per_second_ = 0;  // of late
  absl::Status failure_;
};

}  // namespace tandem
