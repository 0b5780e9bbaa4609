// What the runtime says about driver, device and errors.
#include <cstdio>
#include <cstring>

#include "tests/simt/runtime.h"
#include "tests/simt/shared_memory.h"

namespace simt {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

constexpr int kRuntimeVersion = CUDART_VERSION;
constexpr size_t kSharedBytesDefault = 48 << 10;
constexpr size_t kSharedBytesPerSm = 228 << 10;
constexpr int kThreadsPerSm = 2048;
constexpr int kBlocksPerSm = 32;
constexpr int kL2Bytes = 64 << 20;

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define SIMT_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    SIMT_ERROR(cudaSuccess, "no error"),
    SIMT_ERROR(cudaErrorInvalidValue, "invalid argument"),
    SIMT_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    SIMT_ERROR(cudaErrorInitializationError, "initialization error"),
    SIMT_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    SIMT_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    SIMT_ERROR(cudaErrorInsufficientDriver,
               "CUDA driver version is insufficient for CUDA runtime version"),
    SIMT_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    SIMT_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    SIMT_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    SIMT_ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
    SIMT_ERROR(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed"),
    SIMT_ERROR(cudaErrorNoKernelImageForDevice,
               "no kernel image is available for execution on the device"),
    SIMT_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    SIMT_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    SIMT_ERROR(cudaErrorNotReady, "device not ready"),
    SIMT_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    SIMT_ERROR(cudaErrorHostMemoryAlreadyRegistered,
               "part or all of the requested memory range is already mapped"),
    SIMT_ERROR(cudaErrorHostMemoryNotRegistered,
               "pointer does not correspond to a registered "
               "memory region"),
    SIMT_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    SIMT_ERROR(cudaErrorNotSupported, "operation not supported"),
    SIMT_ERROR(cudaErrorSystemDriverMismatch,
               "system has unsupported display driver / cuda driver combination"),
    SIMT_ERROR(cudaErrorStreamCaptureUnsupported,
               "operation not permitted when stream is capturing"),
    SIMT_ERROR(cudaErrorStreamCaptureInvalidated,
               "operation failed due to a previous error during capture"),
    SIMT_ERROR(cudaErrorStreamCaptureMerge,
               "operation would result in a merge of separate capture sequences"),
    SIMT_ERROR(cudaErrorStreamCaptureUnmatched,
               "capture was not ended in the same stream as it "
               "began"),
    SIMT_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    SIMT_ERROR(cudaErrorStreamCaptureIsolation,
               "dependency created on uncaptured work in another stream"),
    SIMT_ERROR(cudaErrorStreamCaptureImplicit,
               "operation would make the legacy stream depend on a capturing blocking stream"),
    SIMT_ERROR(cudaErrorCapturedEvent,
               "operation not permitted on an event last recorded in a capturing stream"),
    SIMT_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef SIMT_ERROR

// The config and whether `device` is one of its devices.
cudaError_t Look(int device, DeviceConfig* config) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return error;
  *config = machine.config;
  return device >= 0 && device < config->num_devices ? cudaSuccess : cudaErrorInvalidDevice;
}

}  // namespace

Machine& TheMachine() {
  static Machine& machine = *new Machine;  // never destroyed: threads may still use it at exit
  return machine;
}

cudaError_t Machine::Usable() const {
  if (config.missing_driver || config.driver_version < kRuntimeVersion) {
    return cudaErrorInsufficientDriver;
  }
  return config.num_devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void SetSeed(uint64_t seed) {
  std::lock_guard lock(TheMachine().mutex);
  TheMachine().random.Seed(seed);
}

void Configure(const DeviceConfig& config) {
  std::lock_guard lock(TheMachine().mutex);
  TheMachine().config = config;
}

Counters Counts() {
  std::lock_guard lock(TheMachine().mutex);
  return TheMachine().counters;
}

void ResetCounts() {
  std::lock_guard lock(TheMachine().mutex);
  TheMachine().counters = {};
}

}  // namespace simt

using simt::DeviceConfig;
using simt::Report;
using simt::TheMachine;

cudaError_t cudaDriverGetVersion(int* version) {
  std::lock_guard lock(TheMachine().mutex);
  const DeviceConfig& config = TheMachine().config;
  *version = config.missing_driver ? 0 : config.driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = simt::kRuntimeVersion;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  std::lock_guard lock(TheMachine().mutex);
  const cudaError_t error = TheMachine().Usable();
  if (error == cudaSuccess) *count = TheMachine().config.num_devices;
  return Report(error);
}

cudaError_t cudaGetDevice(int* device) {
  DeviceConfig config;
  const cudaError_t error = simt::Look(0, &config);
  if (error == cudaSuccess) *device = 0;
  return Report(error);
}

// There is one memory and one set of streams: of several devices only the first can be used.
cudaError_t cudaSetDevice(int device) {
  DeviceConfig config;
  const cudaError_t error = simt::Look(device, &config);
  if (error != cudaSuccess) return Report(error);
  return Report(device == 0 ? cudaSuccess : cudaErrorNotSupported);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  DeviceConfig config;
  if (const cudaError_t error = simt::Look(device, &config); error != cudaSuccess) {
    return Report(error);
  }
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "%s", config.name.c_str());
  properties->totalGlobalMem = config.memory_bytes;
  properties->sharedMemPerBlock = simt::kSharedBytesDefault;
  properties->regsPerBlock = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->major = config.compute_capability / 10;
  properties->minor = config.compute_capability % 10;
  properties->multiProcessorCount = config.num_sms;
  properties->asyncEngineCount = 2;
  properties->unifiedAddressing = 1;
  properties->memoryBusWidth = 6144;
  properties->l2CacheSize = simt::kL2Bytes;
  properties->maxThreadsPerMultiProcessor = simt::kThreadsPerSm;
  properties->sharedMemPerMultiprocessor = simt::kSharedBytesPerSm;
  properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlockOptin = simt::kMaxSharedBytes;
  properties->maxBlocksPerMultiProcessor = simt::kBlocksPerSm;
  properties->pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) {
    return error;
  }
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(p.sharedMemPerBlock);
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = p.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrAsyncEngineCount:
      *value = p.asyncEngineCount;
      break;
    case cudaDevAttrUnifiedAddressing:
      *value = p.unifiedAddressing;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(p.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = p.regsPerMultiprocessor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = p.maxBlocksPerMultiProcessor;
      break;
    default:
      return Report(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  DeviceConfig config;
  const cudaError_t error = simt::Look(device, &config);
  if (error == cudaSuccess) {
    std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  }
  return Report(error);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = simt::last_error;
  simt::last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return simt::last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  for (const auto& known : simt::kErrors) {
    if (known.error == error) return known.name;
  }
  return "cudaErrorUnknown";
}

const char* cudaGetErrorString(cudaError_t error) {
  for (const auto& known : simt::kErrors) {
    if (known.error == error) return known.text;
  }
  return "unrecognized error code";
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int block_size,
                                                          size_t shared_bytes) {
  if (block_size < 1 || block_size > 1024) return Report(cudaErrorInvalidValue);
  constexpr size_t kReserved = 1024;  // of shared memory, by the system, for each block
  const int by_threads = simt::kThreadsPerSm / ((block_size + 31) / 32 * 32);
  const int by_shared =
      shared_bytes > simt::kMaxSharedBytes
          ? 0
          : static_cast<int>(simt::kSharedBytesPerSm / (shared_bytes + kReserved));
  *blocks = min(min(by_threads, by_shared), simt::kBlocksPerSm);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int block_size, size_t shared_bytes, unsigned int) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared_bytes);
}
