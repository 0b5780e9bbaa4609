#include "kernels/cuda/memory/mapped_memory.h"

#include <cstdint>
#include <string>

#include "base/status.h"
#include "kernels/cuda/device/driver_api.h"

namespace tandem::cuda {
namespace {

// An allocation of the driver's. Mappings and exported files of it live on when this is destroyed.
class Allocation {
 public:
  Allocation(const DriverApi& driver, CUmemGenericAllocationHandle handle)
      : driver_(driver), handle_(handle) {}
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() { driver_.mem_release(handle_); }

  CUmemGenericAllocationHandle handle() const { return handle_; }

 private:
  const DriverApi& driver_;
  const CUmemGenericAllocationHandle handle_;
};

// A range of addresses, and the memory mapped there; both are given up unless Keep is called.
class AddressRange {
 public:
  explicit AddressRange(const DriverApi& driver) : driver_(driver) {}
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange() {
    if (mapped_) driver_.mem_unmap(address_, bytes_);
    if (bytes_ > 0) driver_.mem_address_free(address_, bytes_);
  }

  CUresult Reserve(size_t bytes) {
    const CUresult result = driver_.mem_address_reserve(&address_, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) bytes_ = bytes;
    return result;
  }
  CUresult Map(const Allocation& allocation) {
    const CUresult result = driver_.mem_map(address_, bytes_, 0, allocation.handle(), 0);
    mapped_ = result == CUDA_SUCCESS;
    return result;
  }
  CUresult Allow(int device, CUmemAccess_flags access) {
    CUmemAccessDesc wanted = {};
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = device;
    wanted.flags = access;
    return driver_.mem_set_access(address_, bytes_, &wanted, 1);
  }
  MappedMemory Keep() {
    const MappedMemory memory = {reinterpret_cast<std::byte*>(address_), bytes_};
    mapped_ = false;
    bytes_ = 0;
    return memory;
  }

 private:
  const DriverApi& driver_;
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
  bool mapped_ = false;
};

absl::Status Failed(const DriverApi& driver, absl::StatusCode code, CUresult result,
                    std::string_view what) {
  return MakeStatus(code, "{}: {}", what, DriverMessage(driver, result));
}

absl::StatusCode CodeOfAllocation(CUresult result) {
  return result == CUDA_ERROR_OUT_OF_MEMORY ? absl::StatusCode::kResourceExhausted
                                            : absl::StatusCode::kFailedPrecondition;
}

CUmemAllocationProp SharedOn(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

struct Granules {
  const DriverApi& driver;
  size_t granule_bytes;

  size_t Hold(size_t bytes) const {
    return (bytes + granule_bytes - 1) / granule_bytes * granule_bytes;
  }
};

absl::StatusOr<Granules> GranulesOf(int device) {
  const DriverApi* driver = Driver();
  if (driver == nullptr) return FailedPrecondition("the driver has no virtual memory management");
  const CUmemAllocationProp properties = SharedOn(device);
  size_t bytes = 0;
  const CUresult result = driver->mem_get_allocation_granularity(
      &bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS || bytes == 0) {
    return Failed(*driver, absl::StatusCode::kFailedPrecondition, result,
                  "ask for the granularity");
  }
  return Granules{*driver, bytes};
}

// The status of a failed import: an error of the caller's file, of memory that ran out, or of this
// device.
absl::StatusCode CodeOfImport(CUresult result) {
  switch (result) {
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
      return absl::StatusCode::kInvalidArgument;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kFailedPrecondition;
  }
}

// Whether the allocation is larger than mapped_bytes. The driver maps what lies at its beginning,
// so that only a refusal to map one granule more says where it ends.
bool HoldsMore(const Granules& granules, const Allocation& allocation, size_t mapped_bytes) {
  AddressRange range(granules.driver);
  return range.Reserve(mapped_bytes + granules.granule_bytes) == CUDA_SUCCESS &&
         range.Map(allocation) == CUDA_SUCCESS;
}

}  // namespace

absl::StatusOr<ExportedMemory> MapNewMemory(int device, size_t bytes) {
  ASSIGN_OR_RETURN(const Granules granules, GranulesOf(device));
  const DriverApi& driver = granules.driver;
  const size_t mapped_bytes = granules.Hold(bytes);
  const CUmemAllocationProp properties = SharedOn(device);
  const auto failed = [&driver](CUresult result, std::string_view what) {
    return Failed(driver, CodeOfAllocation(result), result, what);
  };
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver.mem_create(&handle, mapped_bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return failed(result, "allocate memory to share");
  const Allocation allocation(driver, handle);
  int file = -1;
  result = driver.mem_export(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != CUDA_SUCCESS) return failed(result, "export memory");
  ExportedMemory exported;
  exported.file = UniqueFd(file);
  AddressRange range(driver);
  result = range.Reserve(mapped_bytes);
  if (result == CUDA_SUCCESS) result = range.Map(allocation);
  if (result == CUDA_SUCCESS) result = range.Allow(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (result != CUDA_SUCCESS) return failed(result, "map memory to share");
  exported.memory = range.Keep();
  return exported;
}

absl::StatusOr<MappedMemory> MapMemoryOfFile(int device, const UniqueFd& file, size_t bytes) {
  ASSIGN_OR_RETURN(const Granules granules, GranulesOf(device));
  const DriverApi& driver = granules.driver;
  const size_t mapped_bytes = granules.Hold(bytes);
  CUmemGenericAllocationHandle handle = 0;
  // The type in the driver's interface is a pointer, whatever the kind of handle.
  void* const os_handle = reinterpret_cast<void*>(static_cast<uintptr_t>(file.get()));
  CUresult result = driver.mem_import(&handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const auto failed = [&driver](CUresult result, std::string_view what) {
    return Failed(driver, CodeOfImport(result), result, what);
  };
  if (result != CUDA_SUCCESS) return failed(result, "import memory");
  const Allocation allocation(driver, handle);
  if (HoldsMore(granules, allocation, mapped_bytes)) {
    return InvalidArgument("the memory is larger than that");
  }
  AddressRange range(driver);
  result = range.Reserve(mapped_bytes);
  if (result != CUDA_SUCCESS) return failed(result, "reserve addresses");
  result = range.Map(allocation);
  if (result != CUDA_SUCCESS) return failed(result, "map memory");
  // Drivers that have no read-only access report it as invalid.
  result = range.Allow(device, CU_MEM_ACCESS_FLAGS_PROT_READ);
  if (result != CUDA_SUCCESS) result = range.Allow(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (result != CUDA_SUCCESS) {
    return Failed(driver, absl::StatusCode::kFailedPrecondition, result, "reach memory");
  }
  return range.Keep();
}

void UnmapMemory(const MappedMemory& memory) {
  const auto address = reinterpret_cast<CUdeviceptr>(memory.data);
  Driver()->mem_unmap(address, memory.mapped_bytes);
  Driver()->mem_address_free(address, memory.mapped_bytes);
}

}  // namespace tandem::cuda
