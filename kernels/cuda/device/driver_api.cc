#include "kernels/cuda/device/driver_api.h"

#include <cuda_runtime.h>

#include "fmt/format.h"

namespace tandem::cuda {
namespace {

constexpr unsigned kAsOfVersion = 12000;

template <class Function>
bool Find(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kAsOfVersion, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess) cudaGetLastError();
  function = reinterpret_cast<Function>(found);
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess && found != nullptr;
}

bool FindAll(DriverApi& api) {
  return Find("cuGetErrorName", api.get_error_name) &&
         Find("cuGetErrorString", api.get_error_string) &&
         Find("cuMemAddressFree", api.mem_address_free) &&
         Find("cuMemAddressReserve", api.mem_address_reserve) &&
         Find("cuMemCreate", api.mem_create) &&
         Find("cuMemExportToShareableHandle", api.mem_export) &&
         Find("cuMemGetAddressRange", api.mem_get_address_range) &&
         Find("cuMemGetAllocationGranularity", api.mem_get_allocation_granularity) &&
         Find("cuMemImportFromShareableHandle", api.mem_import) && Find("cuMemMap", api.mem_map) &&
         Find("cuMemRelease", api.mem_release) && Find("cuMemSetAccess", api.mem_set_access) &&
         Find("cuMemUnmap", api.mem_unmap);
}

}  // namespace

const DriverApi* Driver() {
  static const DriverApi* const driver = [] {
    static DriverApi api;
    return FindAll(api) ? &api : nullptr;
  }();
  return driver;
}

std::string DriverMessage(const DriverApi& driver, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  driver.get_error_name(result, &name);
  driver.get_error_string(result, &text);
  if (name == nullptr || text == nullptr) return fmt::format("driver error {}", int{result});
  return fmt::format("{} ({})", text, name);
}

}  // namespace tandem::cuda
