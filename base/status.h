#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/core.h"

namespace tandem {

// One builder per status code that Tandem uses, each with one meaning (docs/glossary.md):
// the message names what was wrong, with the value, and what to do.
template <typename... Args>
absl::Status MakeStatus(absl::StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return absl::Status(code, fmt::format(format, std::forward<Args>(args)...));
}

// The client's fault: the same request will never succeed.
template <typename... Args>
absl::Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

// A named thing (file, model, worker, reservation) does not exist.
template <typename... Args>
absl::Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kNotFound, format, std::forward<Args>(args)...);
}

// Overload: retry later at the same place.
template <typename... Args>
absl::Status ResourceExhausted(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kResourceExhausted, format, std::forward<Args>(args)...);
}

// This worker or peer is gone: retry elsewhere.
template <typename... Args>
absl::Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kUnavailable, format, std::forward<Args>(args)...);
}

// Two peers, or a file and this build, disagree about a format or a layout.
template <typename... Args>
absl::Status FailedPrecondition(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kFailedPrecondition, format, std::forward<Args>(args)...);
}

// Bytes did not arrive whole: checksum, length or manifest.
template <typename... Args>
absl::Status DataLoss(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kDataLoss, format, std::forward<Args>(args)...);
}

template <typename... Args>
absl::Status DeadlineExceeded(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kDeadlineExceeded, format, std::forward<Args>(args)...);
}

template <typename... Args>
absl::Status Cancelled(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kCancelled, format, std::forward<Args>(args)...);
}

// The caller showed no identity where one is needed.
template <typename... Args>
absl::Status Unauthenticated(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kUnauthenticated, format, std::forward<Args>(args)...);
}

// The caller has an identity, or a connection, that does not allow what it asks for.
template <typename... Args>
absl::Status PermissionDenied(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kPermissionDenied, format, std::forward<Args>(args)...);
}

// A known format or ability that this build does not have; the message lists what exists.
template <typename... Args>
absl::Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kUnimplemented, format, std::forward<Args>(args)...);
}

// A bug of Tandem.
template <typename... Args>
absl::Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kInternal, format, std::forward<Args>(args)...);
}

// `status` with `context` before its message, as in "models/x: header says 12 bytes", and the same
// code and payloads.
absl::Status Annotate(const absl::Status& status, std::string_view context);

}  // namespace tandem

#define TANDEM_CONCAT_INNER_(a, b) a##b
#define TANDEM_CONCAT_(a, b) TANDEM_CONCAT_INNER_(a, b)

// Returns the status of `expr` from the enclosing function when it is not OK.
#define RETURN_IF_ERROR(expr)                                                              \
  do {                                                                                     \
    if (absl::Status tandem_status_ = (expr); !tandem_status_.ok()) return tandem_status_; \
  } while (false)

// Declares or assigns `lhs` from a StatusOr, or returns its status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  TANDEM_ASSIGN_OR_RETURN_(TANDEM_CONCAT_(tandem_statusor_, __LINE__), lhs, expr)
#define TANDEM_ASSIGN_OR_RETURN_(statusor, lhs, expr)      \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = *std::move(statusor)
