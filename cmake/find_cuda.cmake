# CUDA: found or not, the reason printed, never required unless TANDEM_CUDA=ON. Nothing links libcuda,
# cuBLASLt or NCCL, so that the binary starts on a machine without them. Sets TANDEM_CUDA_FOUND,
# TANDEM_NVCC and, for TANDEM_CUDA=NATIVE, the architectures to compile for.
set(TANDEM_CUDA_FOUND OFF)
set(TANDEM_NATIVE_ARCHITECTURES "")
# The fp8 conversions of sm_89 need PTX ISA 8.1, which ptxas has had since CUDA 12.1.
set(TANDEM_LEAST_CUDA 12.1)

# The compute capability of the first GPU of this machine, such as 90, or nothing.
function(tandem_find_gpu out)
  set(${out} "" PARENT_SCOPE)
  find_program(TANDEM_NVIDIA_SMI nvidia-smi)
  if(NOT TANDEM_NVIDIA_SMI)
    return()
  endif()
  execute_process(COMMAND ${TANDEM_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE capabilities RESULT_VARIABLE result ERROR_QUIET)
  if(result EQUAL 0 AND capabilities MATCHES "^([0-9]+)\\.([0-9]+)")
    set(${out} ${CMAKE_MATCH_1}${CMAKE_MATCH_2} PARENT_SCOPE)
  endif()
endfunction()

# Sets ${out} to why CUDA stays off, or to nothing.
function(tandem_refuse_nvcc out)
  find_program(TANDEM_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(NOT TANDEM_NVCC)
    set(${out} "nvcc was not found: put it on PATH or set CUDA_HOME" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${TANDEM_NVCC} --version OUTPUT_VARIABLE nvcc_version)
  string(REGEX MATCH "release ([0-9.]+)" release "${nvcc_version}")
  if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL TANDEM_LEAST_CUDA)
    set(${out} "" PARENT_SCOPE)
    set(TANDEM_CUDA_RELEASE ${CMAKE_MATCH_1} PARENT_SCOPE)
  else()
    set(${out} "${TANDEM_NVCC} is of CUDA ${CMAKE_MATCH_1}, but ${TANDEM_LEAST_CUDA} or later is needed (its \
assembler is the first that knows the fp8 conversions of sm_89): install a later toolkit and set \
CUDA_HOME, or configure with -DTANDEM_CUDA=OFF" PARENT_SCOPE)
  endif()
endfunction()

set(reason "TANDEM_CUDA=${TANDEM_CUDA}")
if(TANDEM_CUDA STREQUAL "AUTO" AND TANDEM_SANITIZE)
  # Sanitizers see nothing of what nvcc compiles; the emulator runs the same sources under them
  # (tests/simt.cmake).
  set(reason "TANDEM_SANITIZE=${TANDEM_SANITIZE}")
elseif(TANDEM_CUDA STREQUAL "NATIVE")
  tandem_find_gpu(TANDEM_NATIVE_ARCHITECTURES)
  if(NOT TANDEM_NATIVE_ARCHITECTURES)
    set(reason "TANDEM_CUDA=NATIVE, and nvidia-smi finds no GPU")
  elseif(TANDEM_NATIVE_ARCHITECTURES LESS 80)
    set(reason "the GPU has compute capability ${TANDEM_NATIVE_ARCHITECTURES}, and 80 is needed")
  else()
    tandem_refuse_nvcc(reason)
  endif()
  if(NOT reason)
    execute_process(COMMAND ${TANDEM_NVCC} --list-gpu-arch OUTPUT_VARIABLE known)
    if(NOT known MATCHES "compute_${TANDEM_NATIVE_ARCHITECTURES}\n")
      set(reason "${TANDEM_NVCC} is of CUDA ${TANDEM_CUDA_RELEASE}, which does not know \
compute_${TANDEM_NATIVE_ARCHITECTURES}: install a later toolkit and set CUDA_HOME")
    endif()
  endif()
elseif(TANDEM_CUDA)
  tandem_refuse_nvcc(reason)
endif()

if(NOT reason)
  set(TANDEM_CUDA_FOUND ON)
  message(STATUS "CUDA: ON (release ${TANDEM_CUDA_RELEASE} ${TANDEM_NATIVE_ARCHITECTURES})")
  include(cuda)
elseif(TANDEM_CUDA STREQUAL "ON")
  message(FATAL_ERROR "TANDEM_CUDA=ON, but ${reason}")
else()
  message(STATUS "CUDA: OFF (${reason})")
endif()
