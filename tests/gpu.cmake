# The benches of the CUDA backend on the emulated GPU (simt.cmake), every size shrunk: that they run
# from end to end and write what bench/report.py reads. How fast anything is, only a GPU shows
# (tests/gpu/run.sh).
include(${CMAKE_SOURCE_DIR}/bench/cuda_sources.cmake)
list(TRANSFORM CUDA_BENCH_KERNEL_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/bench/)
list(TRANSFORM CUDA_BENCH_HOST_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/bench/)
set_source_files_properties(${CUDA_BENCH_KERNEL_SOURCES} PROPERTIES LANGUAGE CXX
                            COMPILE_OPTIONS "-x;c++;-Wno-unknown-pragmas")
add_executable(cuda_kernel_bench_emulated ${CUDA_BENCH_KERNEL_SOURCES} ${CUDA_BENCH_HOST_SOURCES})
target_include_directories(cuda_kernel_bench_emulated
  BEFORE PRIVATE ${CMAKE_SOURCE_DIR}/tests/simt/include)
target_link_libraries(cuda_kernel_bench_emulated PRIVATE tandem_kernels_cuda_emulated tandem_simt
  tandem_kernels nlohmann_json::nlohmann_json)
add_dependencies(cuda_kernel_bench_emulated tandem_fake_cublaslt)
add_test(NAME cuda_kernel_bench COMMAND ${CMAKE_COMMAND}
  -DPROGRAM=$<TARGET_FILE:cuda_kernel_bench_emulated>
  -DJSON=${CMAKE_CURRENT_BINARY_DIR}/cuda_kernel_bench.json
  -P ${CMAKE_CURRENT_SOURCE_DIR}/gpu/check_bench.cmake)
set_tests_properties(cuda_kernel_bench PROPERTIES TIMEOUT 300)
