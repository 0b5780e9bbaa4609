# The emulated GPU (tests/simt/README.md): the CUDA sources compiled as C++ and run on a CPU.
#   tandem_emulated_test(...)   as tandem_test; the program finds the device "cuda:0", emulated,
#                               whatever the machine has
include(${CMAKE_SOURCE_DIR}/kernels/cuda/sources.cmake)

set(SIMT_SOURCES barriers.cc block.cc device_arena.cc driver_memory.cc fiber.cc ipc_memory.cc
    memory_file.cc runtime_capture.cc runtime_device.cc runtime_memory.cc runtime_streams.cc
    shared_memory.cc warp_ops.cc warpgroup.cc)
list(TRANSFORM SIMT_SOURCES PREPEND simt/)
add_library(tandem_simt STATIC ${SIMT_SOURCES})
# GCC vectorises their loops of products with -O3 alone: 7% less time for all that the emulator runs.
set_source_files_properties(simt/warp_ops.cc simt/warpgroup.cc PROPERTIES COMPILE_OPTIONS -O3)
target_include_directories(tandem_simt BEFORE PUBLIC simt/include)
target_include_directories(tandem_simt PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(tandem_simt PUBLIC Boost::context Threads::Threads ${CMAKE_DL_LIBS})
# The stand-ins for cuBLASLt and NCCL, opened at run time like the real ones, find these in the
# program.
target_link_options(tandem_simt INTERFACE LINKER:--export-dynamic-symbol=simt_queue
                    LINKER:--export-dynamic-symbol=simt_note_heuristic
                    LINKER:--export-dynamic-symbol=simt_queue_polled)

add_library(tandem_fake_cublaslt SHARED simt/fake_cublaslt.cc)
target_include_directories(tandem_fake_cublaslt PRIVATE simt/include ${CMAKE_SOURCE_DIR})
target_link_libraries(tandem_fake_cublaslt PRIVATE ${CMAKE_DL_LIBS})

add_library(tandem_fake_nccl SHARED simt/fake_nccl.cc)
target_include_directories(tandem_fake_nccl PRIVATE simt/include ${CMAKE_SOURCE_DIR})
target_link_libraries(tandem_fake_nccl PRIVATE ${CMAKE_DL_LIBS})

set(emulated ${CUDA_KERNEL_SOURCES} ${CUDA_HOPPER_SOURCES} ${CUDA_HOST_SOURCES})
list(TRANSFORM emulated PREPEND ${CMAKE_SOURCE_DIR}/kernels/cuda/)
if(emulated)
  set(device_code ${emulated})
  list(FILTER device_code INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${device_code} PROPERTIES LANGUAGE CXX
                              COMPILE_OPTIONS "-x;c++;-Wno-unknown-pragmas;-Wno-pass-failed")
  add_library(tandem_kernels_cuda_emulated OBJECT ${emulated})
  target_compile_definitions(tandem_kernels_cuda_emulated PRIVATE
    TANDEM_CUBLASLT_NAME="$<TARGET_FILE:tandem_fake_cublaslt>"
    TANDEM_CUDA_ARCHITECTURES="80-real,89-real,90-real")
  target_link_libraries(tandem_kernels_cuda_emulated PUBLIC tandem_simt tandem_base)
  tandem_precompile(tandem_kernels_cuda_emulated)
endif()

# NCCL's users on the emulated GPU, with the stand-in for NCCL.
include(${CMAKE_SOURCE_DIR}/transfer/media/nccl/sources.cmake)
list(TRANSFORM NCCL_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/transfer/media/nccl/)
add_library(tandem_transfer_nccl_emulated OBJECT ${NCCL_SOURCES})
target_compile_definitions(tandem_transfer_nccl_emulated PRIVATE
  TANDEM_NCCL_NAME="$<TARGET_FILE:tandem_fake_nccl>")
target_include_directories(tandem_transfer_nccl_emulated BEFORE PRIVATE simt/include)
target_link_libraries(tandem_transfer_nccl_emulated PUBLIC tandem_transfer)
tandem_precompile(tandem_transfer_nccl_emulated)
add_dependencies(tandem_transfer_nccl_emulated tandem_fake_nccl)

function(tandem_emulated_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;LABELS;ARGS;TIMEOUT" ${ARGN})
  set(backend tandem_simt)
  if(TARGET tandem_kernels_cuda_emulated)
    set(backend tandem_kernels_cuda_emulated tandem_simt)
  endif()
  # First, so that its objects win over the default backend of tandem_kernels.
  tandem_test(${name} SOURCES ${arg_SOURCES} DEPS ${backend} ${arg_DEPS} LABELS ${arg_LABELS}
              ARGS ${arg_ARGS} TIMEOUT ${arg_TIMEOUT})
  target_include_directories(${name} BEFORE PRIVATE ${CMAKE_SOURCE_DIR}/tests/simt/include)
  add_dependencies(${name} tandem_fake_cublaslt tandem_fake_nccl)
endfunction()

# Tests of the emulator itself: kernels in them are compiled like the real ones.
foreach(name capture hopper runtime schedule warp)
  tandem_test(simt_${name}_test SOURCES simt/${name}_test.cc DEPS tandem_simt)
  target_include_directories(simt_${name}_test BEFORE PRIVATE simt/include)
  target_compile_options(simt_${name}_test PRIVATE -Wno-unknown-pragmas)
endforeach()
# As on a processor without keys that protect memory by thread.
add_test(NAME simt_runtime_without_keys_test COMMAND simt_runtime_test)
set_tests_properties(simt_runtime_without_keys_test PROPERTIES ENVIRONMENT SIMT_WITHOUT_KEYS=1
                                                               LABELS simt)
target_compile_definitions(simt_capture_test PRIVATE
  TANDEM_CUBLASLT_NAME="$<TARGET_FILE:tandem_fake_cublaslt>")
add_dependencies(simt_capture_test tandem_fake_cublaslt)
