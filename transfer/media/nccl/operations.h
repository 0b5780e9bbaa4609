#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "base/clock.h"
#include "transfer/media/nccl/communicator.h"

namespace tandem {

// The sends and receives of one connection, in order. An operation is
//   waiting    until NCCL has put the one before on the stream (NCCL takes one call at a time)
//   begun      until NCCL has put it on the stream, after which an event is recorded
//   on stream  until the event is done, or until its deadline, because NCCL does not notice that a
//              peer has died
// The first error ends all operations (failure()).
// Thread: the loop's. No call waits.
class NcclOperations {
 public:
  // An operation may take `grace` plus the time of its bytes at a fifth of the recent rate. The
  // first operation, for which NCCL connects the two GPUs, may take `first_grace` instead of
  // `grace`.
  NcclOperations(NcclConnection connection, std::chrono::milliseconds grace,
                 std::chrono::milliseconds first_grace);

  // Sends the first `bytes` bytes of the slot, which the operation holds until it is done.
  void Send(MemorySlot slot, size_t bytes);
  void Receive(std::span<std::byte> bytes);
  // Advances every operation that can go on.
  void Advance();
  // Ends all operations with the error `status`.
  void Fail(const absl::Status& status);

  bool empty() const { return operations_.empty(); }
  size_t size() const { return operations_.size(); }
  const absl::Status& failure() const { return failure_; }
  // Gives out the connection with everything that the operations still hold. Nothing may be called
  // after it.
  NcclConnection TakeConnection();

 private:
  struct Operation {
    enum class State { kWaiting, kBegun, kOnStream };

    MemorySlot slot;             // the memory of `bytes`; only a send sets it
    std::span<std::byte> bytes;  // what is sent, or where to receive
    State state = State::kWaiting;
    std::unique_ptr<Event> event;
    TimePoint began{};  // when it became the first in the queue
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
  std::deque<Operation> operations_;  // in order; the first one is on the stream
  bool any_done_ = false;
  double bytes_per_second_ = 0;  // the recent mean
  absl::Status failure_;
};

}  // namespace tandem
