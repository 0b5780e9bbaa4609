# The CUDA language and toolkit, once nvcc is found (TANDEM_NVCC).
set(TANDEM_CUDA_ARCHITECTURES "80-real;89-real;90-real" CACHE STRING
    "What the portable kernels are compiled for; those for Hopper alone are 90a-real")
if(TANDEM_NATIVE_ARCHITECTURES)
  set(TANDEM_CUDA_ARCHITECTURES ${TANDEM_NATIVE_ARCHITECTURES}-real)  # hides the cached value
endif()
set(CMAKE_CUDA_COMPILER ${TANDEM_NVCC})
# Each target names its own architectures; without a value CMake would ask the compiler's default.
set(CMAKE_CUDA_ARCHITECTURES 90-real)
enable_language(CUDA)
# The module of CMake 3.25 asks for this target, although CUDA 13 has no library nvToolsExt.
if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT TARGET CUDA::nvToolsExt)
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()
find_package(CUDAToolkit ${TANDEM_LEAST_CUDA} REQUIRED)
# CMake 3.25 knows no flag for CUDA C++20, although nvcc has had it since 12.0.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")

# A kernel that spills registers does not compile (cmake/spills.allowed lists exceptions).
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/nvcc_without_spills.sh ${CCACHE})
find_path(TANDEM_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
