#include "transfer/media/nccl/operations.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// The lowest rate from which the time limit of an operation is computed. A lower measured rate is
// assumed to have another cause than the link.
constexpr double kSlowestBytesPerSecond = 100e6;
// The share of the recent rate that an operation has to reach.
constexpr double kShareOfRate = 0.2;
constexpr double kWeightOfNewest = 0.25;

}  // namespace

NcclOperations::NcclOperations(NcclConnection connection, std::chrono::milliseconds grace,
                               std::chrono::milliseconds first_grace)
    : grace_(grace), first_grace_(first_grace), connection_(std::move(connection)) {}

void NcclOperations::Send(MemorySlot slot, size_t bytes) {
  const std::span<std::byte> part = slot.bytes().first(bytes);
  Add({.slot = std::move(slot), .bytes = part});
}

void NcclOperations::Receive(std::span<std::byte> bytes) { Add({.bytes = bytes}); }

void NcclOperations::Add(Operation operation) {
  if (operations_.empty()) operation.began = std::chrono::steady_clock::now();
  operations_.push_back(std::move(operation));
  Advance();
}

void NcclOperations::Advance() {
  if (!failure_.ok() || operations_.empty()) return;
  failure_ = AdvanceCalls();
  if (failure_.ok()) failure_ = AdvanceFirst();
  if (failure_.ok()) failure_ = CheckDeadline();
}

void NcclOperations::Fail(const absl::Status& status) {
  if (failure_.ok()) failure_ = status;
}

// NCCL takes a call only when the call before is on the stream.
absl::Status NcclOperations::AdvanceCalls() {
  while (true) {
    ASSIGN_OR_RETURN(const bool idle, connection_.communicator->Poll());
    if (!idle) return absl::OkStatus();
    const auto next = std::ranges::find_if(operations_, [](const Operation& operation) {
      return operation.state != Operation::State::kOnStream;
    });
    if (next == operations_.end()) return absl::OkStatus();
    if (next->state == Operation::State::kWaiting) {
      RETURN_IF_ERROR(Begin(*next));
    } else {
      ASSIGN_OR_RETURN(next->event, connection_.stream->Record());
      next->state = Operation::State::kOnStream;
    }
  }
}

absl::Status NcclOperations::Begin(Operation& operation) {
  operation.state = Operation::State::kBegun;
  return operation.slot ? connection_.communicator->Send(operation.bytes, *connection_.stream)
                        : connection_.communicator->Receive(operation.bytes, *connection_.stream);
}

absl::Status NcclOperations::AdvanceFirst() {
  while (!operations_.empty() && operations_.front().event != nullptr) {
    Operation& first = operations_.front();
    if (!first.event->Done()) return absl::OkStatus();
    RETURN_IF_ERROR(first.event->Synchronize());  // does not wait; reports a failed device
    const TimePoint now = std::chrono::steady_clock::now();
    const double seconds = std::max(1e-6, ToMilliseconds(now - first.began) / 1e3);
    const double rate = static_cast<double>(first.bytes.size()) / seconds;
    // The first operation also connected the GPUs, so its rate does not count.
    if (any_done_) {
      bytes_per_second_ +=
          (rate - bytes_per_second_) * (bytes_per_second_ > 0 ? kWeightOfNewest : 1);
    }
    any_done_ = true;
    operations_.pop_front();
    if (!operations_.empty()) operations_.front().began = now;
  }
  return absl::OkStatus();
}

absl::Status NcclOperations::CheckDeadline() const {
  if (operations_.empty()) return absl::OkStatus();
  const Operation& first = operations_.front();
  const Duration allowed = Allowed(first.bytes.size());
  if (std::chrono::steady_clock::now() - first.began <= allowed) return absl::OkStatus();
  return Unavailable(
      "NCCL: an operation of {} bytes is not done after {:.0f} ms: the peer or its GPU hangs",
      first.bytes.size(), ToMilliseconds(allowed));
}

Duration NcclOperations::Allowed(size_t bytes) const {
  const double rate = kShareOfRate * std::max(bytes_per_second_, kSlowestBytesPerSecond);
  const std::chrono::duration<double> moving(static_cast<double>(bytes) / rate);
  return std::chrono::duration_cast<Duration>(moving) + (any_done_ ? grace_ : first_grace_);
}

NcclConnection NcclOperations::TakeConnection() {
  for (Operation& operation : operations_) {
    if (operation.slot) connection_.slots.push_back(std::move(operation.slot));
    if (operation.event != nullptr) connection_.events.push_back(std::move(operation.event));
  }
  operations_.clear();
  return std::move(connection_);
}

}  // namespace tandem
