# The benches of the CUDA backend on the emulated GPU (simt.cmake), every size shrunk: that they run
# from end to end and write what bench/report.py reads. How fast anything is, only a GPU shows
# (tests/gpu/run.sh).
include(${CMAKE_SOURCE_DIR}/bench/cuda_sources.cmake)
foreach(list CUDA_BENCH_KERNEL_SOURCES CUDA_BENCH_SOURCES CUDA_KERNEL_BENCH_SOURCES
        CUDA_MODEL_BENCH_SOURCES)
  list(TRANSFORM ${list} PREPEND ${CMAKE_SOURCE_DIR}/bench/)
endforeach()
set_source_files_properties(${CUDA_BENCH_KERNEL_SOURCES} PROPERTIES LANGUAGE CXX
                            COMPILE_OPTIONS "-x;c++;-Wno-unknown-pragmas;-Wno-pass-failed")
add_library(tandem_cuda_bench_emulated OBJECT ${CUDA_BENCH_KERNEL_SOURCES} ${CUDA_BENCH_SOURCES})
target_link_libraries(tandem_cuda_bench_emulated PUBLIC tandem_kernels_cuda_emulated tandem_simt
  tandem_base nlohmann_json::nlohmann_json)
tandem_precompile(tandem_cuda_bench_emulated)

# emulated_bench(NAME SOURCES a.cc ... DEPS lib ... SECTIONS s ... FLAGS f ...): runs it with the
# flags; each section must have rows.
function(emulated_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;SECTIONS;FLAGS" ${ARGN})
  add_executable(${name}_emulated ${arg_SOURCES})
  target_include_directories(${name}_emulated BEFORE PRIVATE ${CMAKE_SOURCE_DIR}/tests/simt/include)
  target_link_libraries(${name}_emulated PRIVATE tandem_cuda_bench_emulated
    tandem_kernels_cuda_emulated tandem_simt ${arg_DEPS} tandem_kernels)
  tandem_precompile(${name}_emulated)
  add_dependencies(${name}_emulated tandem_fake_cublaslt)
  add_test(NAME ${name}_emulated COMMAND ${CMAKE_COMMAND}
    -DPROGRAM=$<TARGET_FILE:${name}_emulated> "-DFLAGS=${arg_FLAGS}" "-DSECTIONS=${arg_SECTIONS}"
    -DJSON=${CMAKE_CURRENT_BINARY_DIR}/${name}.json
    -P ${CMAKE_SOURCE_DIR}/tests/gpu/check_bench.cmake)
  set_tests_properties(${name}_emulated PROPERTIES TIMEOUT 300 COST 300)  # not as the last of all
endfunction()

emulated_bench(cuda_kernel_bench SOURCES ${CUDA_KERNEL_BENCH_SOURCES}
  FLAGS --scale 0.002 --repeats 2 --launches 2
  SECTIONS ceilings decode prefill movement small gemm sampling)
emulated_bench(cuda_model_bench SOURCES ${CUDA_MODEL_BENCH_SOURCES} DEPS tandem_transformer
  FLAGS --shape tiny --steps 2
  SECTIONS ceilings model "model ops")

# The scripts themselves.
add_test(NAME gpu_run COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/gpu/run_test.sh
  ${CMAKE_CURRENT_SOURCE_DIR}/gpu/run.sh)
set_tests_properties(gpu_run PROPERTIES TIMEOUT 300 COST 300)
add_test(NAME gpu_filters COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/gpu/filters_test.sh
  ${CMAKE_BINARY_DIR}/bin)
tandem_test(verdict_test SOURCES unit/bench/verdict_test.cc DEPS tandem_base LABELS unit)
tandem_emulated_test(cuda_bench_test SOURCES unit/bench/cuda_bench_test.cc
  DEPS tandem_cuda_bench_emulated tandem_kernels)

# Between two processes that share memory of the emulated GPU.
include(${CMAKE_SOURCE_DIR}/bench/transfer_sources.cmake)
list(TRANSFORM TRANSFER_BENCH_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/bench/)
add_executable(transfer_bench_emulated ${TRANSFER_BENCH_SOURCES} support/test_certificates.cc)
target_link_libraries(transfer_bench_emulated PRIVATE tandem_kernels_cuda_emulated tandem_simt
  tandem_transfer tandem_kernels nlohmann_json::nlohmann_json GTest::gtest)
tandem_precompile(transfer_bench_emulated)
add_dependencies(transfer_bench_emulated tandem_fake_cublaslt)
add_test(NAME transfer_bench_emulated COMMAND ${CMAKE_COMMAND}
  -DPROGRAM=$<TARGET_FILE:transfer_bench_emulated>
  "-DFLAGS=--device;cuda:0;--scale;0.01;--repeats;2;--streams;2"
  "-DWAYS=copy through shared memory;one copy out of its memory;ipc;shm"
  -DJSON=${CMAKE_CURRENT_BINARY_DIR}/transfer_bench.json
  -P ${CMAKE_SOURCE_DIR}/tests/gpu/check_transfer.cmake)
set_tests_properties(transfer_bench_emulated PROPERTIES TIMEOUT 300)

# docs/performance.md says what the results in bench/results/ say.
find_program(TANDEM_PYTHON python3)
if(TANDEM_PYTHON)
  add_test(NAME performance_page COMMAND ${TANDEM_PYTHON} ${CMAKE_SOURCE_DIR}/bench/report.py --check)
endif()
