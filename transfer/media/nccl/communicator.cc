#include "transfer/media/nccl/communicator.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/log.h"
#include "base/status.h"
#include "fmt/ranges.h"
#include "transfer/media/nccl/setup.h"

namespace tandem {
namespace {

// The bounds on the thread blocks of NCCL's kernels: enough to reach the rate of the GPU's copy
// engines, and few enough to leave the rest of the GPU to the model.
constexpr int kMinThreadBlocks = 1;
constexpr int kMaxThreadBlocks = 8;
constexpr int kRanks = 2;

cudaStream_t HandleOf(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

// The first version of NCCL that has the implicit launch order.
constexpr uint32_t kOldestVersion = 22600;

template <class Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return FailedPrecondition("NCCL has no {}: install 2.26 or later", name);
}

absl::StatusOr<void*> OpenFirst(std::span<const char* const> names) {
  for (const char* name : names) {
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return FailedPrecondition(
      "NCCL was not found (tried {}): install libnccl2, or put its directory into LD_LIBRARY_PATH, "
      "or use another KV transport",
      fmt::join(names, ", "));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const NcclLibrary>> NcclLibrary::Open(
    std::span<const char* const> names) {
  setenv("NCCL_RAS_ENABLE", "0", /*overwrite=*/0);
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  ASSIGN_OR_RETURN(void* const library, OpenFirst(names));
  auto nccl = std::make_shared<NcclLibrary>();
  decltype(&ncclGetVersion) get_version = nullptr;
  RETURN_IF_ERROR(Find(library, "ncclGetVersion", get_version));
  RETURN_IF_ERROR(Find(library, "ncclGetUniqueId", nccl->get_unique_id));
  RETURN_IF_ERROR(Find(library, "ncclCommInitRankConfig", nccl->init_rank));
  RETURN_IF_ERROR(Find(library, "ncclCommGetAsyncError", nccl->get_async_error));
  RETURN_IF_ERROR(Find(library, "ncclCommAbort", nccl->abort));
  RETURN_IF_ERROR(Find(library, "ncclSend", nccl->send));
  RETURN_IF_ERROR(Find(library, "ncclRecv", nccl->receive));
  RETURN_IF_ERROR(Find(library, "ncclGetErrorString", nccl->error_string));
  RETURN_IF_ERROR(Find(library, "ncclGetLastError", nccl->last_error));
  int version = 0;
  RETURN_IF_ERROR(nccl->ToStatus(get_version(&version), "ask NCCL for its version"));
  nccl->version = static_cast<uint32_t>(version);
  if (nccl->version < kOldestVersion) {
    return FailedPrecondition(
        "NCCL {} is too old: install {} or later, or use another KV transport",
        NcclVersionText(nccl->version), NcclVersionText(kOldestVersion));
  }
  LogInfo("nccl opened version={}", NcclVersionText(nccl->version));
  return nccl;
}

absl::Status NcclLibrary::ToStatus(ncclResult_t result, std::string_view what) const {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  return Unavailable("{}: {} {}", what, error_string(result), last_error(nullptr));
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Begin(
    std::shared_ptr<const NcclLibrary> nccl, const ncclUniqueId& id, int rank, std::string name) {
  std::unique_ptr<NcclCommunicator> communicator(
      new NcclCommunicator(std::move(nccl), rank, std::move(name)));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = kMinThreadBlocks;
  config.maxCTAs = kMaxThreadBlocks;
  config.commName = communicator->name_.c_str();
  const NcclLibrary& library = *communicator->nccl_;
  RETURN_IF_ERROR(
      library.ToStatus(library.init_rank(&communicator->handle_, kRanks, id, rank, &config),
                       "make an NCCL communicator"));
  return communicator;
}

NcclCommunicator::~NcclCommunicator() {
  if (handle_ != nullptr) nccl_->abort(handle_);
}

absl::StatusOr<bool> NcclCommunicator::Poll() {
  ncclResult_t state = ncclInProgress;
  RETURN_IF_ERROR(nccl_->ToStatus(nccl_->get_async_error(handle_, &state), "ask NCCL"));
  if (state == ncclInProgress) return false;
  if (state == ncclSuccess) return true;
  return Unavailable("NCCL: {}: {}", nccl_->error_string(state), nccl_->last_error(handle_));
}

absl::Status NcclCommunicator::Send(std::span<const std::byte> bytes, const Stream& stream) {
  return nccl_->ToStatus(
      nccl_->send(bytes.data(), bytes.size(), ncclUint8, peer(), handle_, HandleOf(stream)),
      "send with NCCL");
}

absl::Status NcclCommunicator::Receive(std::span<std::byte> bytes, const Stream& stream) {
  return nccl_->ToStatus(
      nccl_->receive(bytes.data(), bytes.size(), ncclUint8, peer(), handle_, HandleOf(stream)),
      "receive with NCCL");
}

}  // namespace tandem
