#pragma once

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// The functions of NCCL that are used here, from the shared library of this machine: whether there
// is one, and which, is known when it is opened. That it can be opened proves nothing about a GPU.
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

  // Opens the first of `names` that there is; it stays open to the end of the process. Before that
  // it turns NCCL's own listener (RAS) off and its implicit launch order on, which keeps
  // communicators of one GPU from waiting for one another, unless the environment says otherwise:
  // to be called while the process has one thread, or none that reads the environment.
  // FAILED_PRECONDITION when there is none, when it is too old, or lacks a function.
  static absl::StatusOr<std::shared_ptr<const NcclLibrary>> Open(
      std::span<const char* const> names);

  // What a call returned, for `what` that was tried: UNAVAILABLE with NCCL's words. OK, too, for
  // ncclInProgress.
  absl::Status ToStatus(ncclResult_t result, std::string_view what) const;
};

// What the medium looks for.
std::span<const char* const> NcclNames();

}  // namespace tandem
