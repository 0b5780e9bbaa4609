#include "server/services/status_mapping.h"

#include <string>

#include "base/utf8.h"

namespace tandem {
namespace {

constexpr bool Same(absl::StatusCode ours, grpc::StatusCode theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(Same(absl::StatusCode::kOk, grpc::StatusCode::OK));
static_assert(Same(absl::StatusCode::kCancelled, grpc::StatusCode::CANCELLED));
static_assert(Same(absl::StatusCode::kUnknown, grpc::StatusCode::UNKNOWN));
static_assert(Same(absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT));
static_assert(Same(absl::StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED));
static_assert(Same(absl::StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND));
static_assert(Same(absl::StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS));
static_assert(Same(absl::StatusCode::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED));
static_assert(Same(absl::StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED));
static_assert(Same(absl::StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION));
static_assert(Same(absl::StatusCode::kAborted, grpc::StatusCode::ABORTED));
static_assert(Same(absl::StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE));
static_assert(Same(absl::StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED));
static_assert(Same(absl::StatusCode::kInternal, grpc::StatusCode::INTERNAL));
static_assert(Same(absl::StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE));
static_assert(Same(absl::StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS));
static_assert(Same(absl::StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED));

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // gRPC sends messages as metadata, whose size is limited, and messages may quote bytes that are
  // not UTF-8.
  constexpr size_t kMaxMessageBytes = 2048;
  const std::string message(status.message().substr(0, kMaxMessageBytes));
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      ReplaceInvalidUtf8(message));
}

absl::Status ToAbslStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace tandem
