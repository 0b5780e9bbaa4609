#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace tandem {

// How much of the device a kernel gets.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic shared memory; at most what the device allows a block
  // The kernel may start before the kernels before it in the stream have ended (programmatic
  // dependent launch). All its threads call ptx::GridDependencyWait, and before that touch no
  // memory that any kernel writes.
  bool after_previous = false;
};

// Shared memory, dynamic and static together, that a kernel may use without the attribute that
// raises its limit.
inline constexpr size_t kSharedBytesWithoutAsking = 48 << 10;

// Queues kernel(args...) on the stream. The arguments are converted to the kernel's parameter types
// and copied at the call. Errors are those of the launch, not of the kernel's run. Legal during a
// stream capture.
template <class... P, class... A>
cudaError_t Launch(void (*kernel)(P...), const LaunchShape& shape, cudaStream_t stream,
                   A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "one argument per parameter of the kernel");
  // The limit counts dynamic and static memory: half of it leaves room for what any kernel has
  // statically.
  if (shape.shared_bytes > kSharedBytesWithoutAsking / 2) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = shape.after_previous ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<A>(args))...);
}

}  // namespace tandem
