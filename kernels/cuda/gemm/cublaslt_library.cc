#include "kernels/cuda/gemm/cublaslt_library.h"

#include <dlfcn.h>

#include "base/status.h"
#include "fmt/ranges.h"

namespace tandem::cuda {
namespace {

template <class Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return FailedPrecondition("cuBLASLt has no {}: install that of CUDA 12 or 13", name);
}

}  // namespace

std::span<const char* const> CublasLtNames() {
#ifdef TANDEM_CUBLASLT_NAME
  static constexpr const char* kNames[] = {TANDEM_CUBLASLT_NAME};
#else
  static constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                           "/usr/local/cuda/lib64/libcublasLt.so"};
#endif
  return kNames;
}

absl::StatusOr<CublasLtLibrary> CublasLtLibrary::Open(std::span<const char* const> names) {
  void* library = nullptr;
  for (const char* name : names) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    return FailedPrecondition(
        "cuBLASLt was not found (tried {}): install it with the CUDA runtime libraries, or put its "
        "directory into LD_LIBRARY_PATH",
        fmt::join(names, ", "));
  }
  CublasLtLibrary lt;
  RETURN_IF_ERROR(Find(library, "cublasLtCreate", lt.create));
  RETURN_IF_ERROR(Find(library, "cublasLtDestroy", lt.destroy));
  RETURN_IF_ERROR(Find(library, "cublasLtGetVersion", lt.get_version));
  RETURN_IF_ERROR(Find(library, "cublasLtGetStatusString", lt.get_status_string));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmul", lt.matmul));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulAlgoGetHeuristic", lt.get_heuristic));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescCreate", lt.desc_create));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescSetAttribute", lt.desc_set));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescDestroy", lt.desc_destroy));
  RETURN_IF_ERROR(Find(library, "cublasLtMatrixLayoutCreate", lt.layout_create));
  RETURN_IF_ERROR(Find(library, "cublasLtMatrixLayoutDestroy", lt.layout_destroy));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceCreate", lt.preference_create));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceSetAttribute", lt.preference_set));
  RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceDestroy", lt.preference_destroy));
  return lt;
}

}  // namespace tandem::cuda
