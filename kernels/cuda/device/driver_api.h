#pragma once

#include <cuda.h>

#include <string>

namespace tandem::cuda {

// Functions of the CUDA driver without a counterpart in the runtime: memory that is allocated,
// mapped and exported in separate steps. The runtime looks them up, so that nothing is linked with
// libcuda.
struct DriverApi {
  decltype(&cuGetErrorName) get_error_name = nullptr;
  decltype(&cuGetErrorString) get_error_string = nullptr;
  decltype(&cuMemAddressFree) mem_address_free = nullptr;
  decltype(&cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&cuMemCreate) mem_create = nullptr;
  decltype(&cuMemExportToShareableHandle) mem_export = nullptr;
  decltype(&cuMemGetAddressRange) mem_get_address_range = nullptr;
  decltype(&cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&cuMemImportFromShareableHandle) mem_import = nullptr;
  decltype(&cuMemMap) mem_map = nullptr;
  decltype(&cuMemRelease) mem_release = nullptr;
  decltype(&cuMemSetAccess) mem_set_access = nullptr;
  decltype(&cuMemUnmap) mem_unmap = nullptr;
};

// The driver's functions, looked up once by a process that has a device; null where the driver
// lacks one of them. Thread-safe.
const DriverApi* Driver();

// An error's text and name, as in "invalid argument (CUDA_ERROR_INVALID_VALUE)".
std::string DriverMessage(const DriverApi& driver, CUresult result);

}  // namespace tandem::cuda
