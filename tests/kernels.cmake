# Tests of kernels. What links tandem_ops_support runs on every backend of the machine; a name
# such as */cuda_0 in --gtest_filter chooses one.
set(OPS_SUPPORT_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/support/attention_fixture.cc
    ${CMAKE_CURRENT_SOURCE_DIR}/support/ops_fixture.cc
    ${CMAKE_CURRENT_SOURCE_DIR}/support/reference_floats.cc
    ${CMAKE_CURRENT_SOURCE_DIR}/support/reference_kv.cc
    ${CMAKE_CURRENT_SOURCE_DIR}/support/reference_ops.cc
    ${CMAKE_CURRENT_SOURCE_DIR}/support/sharing_peer.cc)
add_library(tandem_ops_support STATIC ${OPS_SUPPORT_SOURCES})
target_link_libraries(tandem_ops_support PUBLIC tandem_kernels hwy::hwy GTest::gtest)
tandem_precompile(tandem_ops_support TEST)

set(OPS_CONFORMANCE_TESTS device_extents device_sharing ops ops_attention ops_attention_bits
    ops_attention_mass ops_coded_weights ops_kv ops_quantised_kv ops_rows ops_sample ops_validate)
# What a test has beside the file of its name.
set(ops_coded_weights_more conformance/ops_f8_weights_test.cc)
set(ops_kv_more conformance/ops_convert_kv_test.cc conformance/ops_copy_tokens_test.cc)
set(ops_sample_more conformance/ops_sample_logprobs_test.cc conformance/ops_sample_modifiers_test.cc)
set(ops_validate_more conformance/ops_validate_attention_test.cc
    conformance/ops_validate_kv_test.cc)
foreach(name ${OPS_CONFORMANCE_TESTS})
  tandem_test(${name}_test SOURCES conformance/${name}_test.cc ${${name}_more}
              DEPS tandem_ops_support TIMEOUT 600)
endforeach()
tandem_test(gemm_invariance_test SOURCES unit/kernels/gemm_invariance_test.cc
  DEPS tandem_ops_support)
tandem_test(cpu_device_test SOURCES unit/kernels/cpu_device_test.cc DEPS tandem_kernels)
tandem_test(split_plan_test SOURCES property/split_plan_test.cc DEPS tandem_base)
tandem_test(prefill_plan_test SOURCES property/prefill_plan_test.cc
  ${CMAKE_SOURCE_DIR}/kernels/cuda/attention/prefill_plan.cc DEPS tandem_base)

# The same suites on the emulated GPU (simt.cmake), and what only it can show.
foreach(name ${OPS_CONFORMANCE_TESTS})
  tandem_emulated_test(${name}_emulated_test SOURCES conformance/${name}_test.cc ${${name}_more}
    DEPS tandem_ops_support ARGS --gtest_filter=*/cuda_0* TIMEOUT 600)
endforeach()
tandem_emulated_test(cuda_decode_test SOURCES unit/kernels/cuda_decode_test.cc
  DEPS tandem_kernels)
target_compile_options(cuda_decode_test PRIVATE -Wno-unknown-pragmas)
tandem_emulated_test(cuda_device_test SOURCES unit/kernels/cuda_device_test.cc
  unit/kernels/cuda_recording_test.cc unit/kernels/cuda_scratch_test.cc DEPS tandem_kernels)
tandem_emulated_test(cuda_sharing_test SOURCES unit/kernels/cuda_sharing_test.cc
  DEPS tandem_ops_support)
tandem_emulated_test(cuda_ops_test SOURCES unit/kernels/cuda_ops_recording_test.cc
  unit/kernels/cuda_ops_test.cc DEPS tandem_kernels)
tandem_emulated_test(cuda_prefill_test SOURCES unit/kernels/cuda_prefill_test.cc
  DEPS tandem_ops_support TIMEOUT 300)
tandem_emulated_test(cuda_errors_test SOURCES unit/kernels/cuda_errors_test.cc DEPS tandem_kernels)

add_test(NAME cuda_spills COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/unit/kernels/nvcc_without_spills_test.sh
  ${CMAKE_SOURCE_DIR}/cmake/nvcc_without_spills.sh)
set(program $<IF:$<BOOL:${TANDEM_GRPC}>,tandem,kernel_bench>)
add_test(NAME needed_libraries COMMAND ${CMAKE_COMMAND} -DPROGRAM=${CMAKE_BINARY_DIR}/bin/${program}
  -P ${CMAKE_SOURCE_DIR}/cmake/check_needed.cmake)
