#include "kernels/cuda/device/cuda_status.h"

#include "base/status.h"

namespace tandem::cuda {
namespace {

// Whether the error destroys the CUDA context: no later call of the process succeeds.
bool DeviceFailed(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
#if CUDART_VERSION >= 13000
    case cudaErrorContained:  // a hardware error that leaves other processes unharmed
#endif
      return true;
    default:
      return false;
  }
}

absl::StatusCode CodeOf(cudaError_t error) {
  if (DeviceFailed(error)) return absl::StatusCode::kUnavailable;
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status ToStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string_view remedy =
      DeviceFailed(error)
          ? ": the device has failed, by this or an earlier call; restart the process"
          : "";
  return MakeStatus(CodeOf(error), "{}: {} ({}){}", what, cudaGetErrorString(error),
                    cudaGetErrorName(error), remedy);
}

}  // namespace tandem::cuda
