#include "transfer/media/host_channel.h"

#include <iterator>
#include <string_view>

#include "base/status.h"
#include "transfer/media/unix_socket.h"

namespace tandem {
namespace {

std::string_view Text(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// Whether the peer would refuse the same memory again.
bool IsFinal(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

absl::Status Refusal(absl::StatusCode code) {
  return MakeStatus(
      IsFinal(code) ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnavailable,
      "the peer did not take the memory that this worker shares (status code {}): its log says why",
      static_cast<int>(code));
}

}  // namespace

absl::StatusOr<bool> ConnectedHostChannel::Establish() {
  if (answer_count_ < answer_.size()) {
    ASSIGN_OR_RETURN(const Received received,
                     ReceiveWithDescriptors(fd(), std::span(answer_).subspan(answer_count_)));
    answer_count_ += received.count;
  }
  if (answer_count_ < answer_.size()) return false;
  const auto code = ParseMemoryAnswer(answer_);
  if (!code.ok()) return FailedPrecondition("{}", Text(code.status()));
  if (*code != absl::StatusCode::kOk) return Refusal(*code);
  return true;
}

absl::StatusOr<bool> AcceptedHostChannel::Establish() {
  if (side_channel_) return true;
  ASSIGN_OR_RETURN(const bool whole, ReceiveGreeting());
  if (!whole) return false;
  const absl::Status opened = TakeMemory();
  const absl::Status told = SendWithDescriptors(fd(), EncodeMemoryAnswer(opened.code()), {});
  if (opened.ok()) {
    RETURN_IF_ERROR(told);
    return true;
  }
  if (absl::IsResourceExhausted(opened) || absl::IsUnavailable(opened)) {
    return Unavailable("{}", Text(opened));
  }
  return FailedPrecondition("{}", Text(opened));
}

absl::StatusOr<bool> AcceptedHostChannel::ReceiveGreeting() {
  ASSIGN_OR_RETURN(Received received,
                   ReceiveWithDescriptors(fd(), std::span(greeting_).subspan(greeting_count_)));
  std::ranges::move(received.descriptors, std::back_inserter(files_));
  // A peer may send descriptors with every byte.
  if (files_.size() > kMaxMemorySegments) {
    return FailedPrecondition("the peer sent more than {} files with its greeting",
                              kMaxMemorySegments);
  }
  greeting_count_ += received.count;
  return greeting_count_ == greeting_.size();
}

absl::Status AcceptedHostChannel::TakeMemory() {
  ASSIGN_OR_RETURN(const MemoryGreeting greeting, ParseMemoryGreeting(greeting_));
  ASSIGN_OR_RETURN(side_channel_, open_memory_(greeting, std::move(files_)));
  return absl::OkStatus();
}

}  // namespace tandem
