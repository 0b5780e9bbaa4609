#pragma once

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// The functions of NCCL that Tandem calls, loaded at run time from the shared library of this
// machine. That the library can be opened proves nothing about a GPU.
struct NcclLibrary {
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  uint32_t version = 0;  // 22809 is 2.28.9

  // Opens the first of `names` that exists; it stays open until the process ends. First it sets two
  // environment variables, unless they are set: NCCL's own listener (RAS) off, and its implicit
  // launch order on, which keeps communicators of one GPU from waiting for one another. So no other
  // thread may read the environment during this call. FAILED_PRECONDITION when no library exists, or
  // when it is too old or lacks a function.
  static absl::StatusOr<std::shared_ptr<const NcclLibrary>> Open(
      std::span<const char* const> names);

  // The status of a call's `result`: OK also for ncclInProgress, otherwise UNAVAILABLE with `what` was
  // tried and NCCL's words.
  absl::Status ToStatus(ncclResult_t result, std::string_view what) const;
};

// The names under which the medium looks for the library.
std::span<const char* const> NcclNames();

}  // namespace tandem
