# Tests of kernels.
add_library(tandem_ops_support STATIC support/ops_fixture.cc support/reference_ops.cc)
target_link_libraries(tandem_ops_support PUBLIC tandem_kernels hwy::hwy GTest::gtest)

tandem_test(ops_test SOURCES conformance/ops_test.cc DEPS tandem_ops_support)
tandem_test(ops_sample_test SOURCES conformance/ops_sample_test.cc DEPS tandem_ops_support)
tandem_test(ops_validate_test SOURCES conformance/ops_validate_test.cc DEPS tandem_ops_support)
tandem_test(ops_attention_test SOURCES conformance/ops_attention_test.cc DEPS tandem_ops_support
  TIMEOUT 400)
tandem_test(gemm_invariance_test SOURCES unit/kernels/gemm_invariance_test.cc DEPS tandem_ops_support)
tandem_test(cpu_device_test SOURCES unit/kernels/cpu_device_test.cc DEPS tandem_kernels)
tandem_test(split_plan_test SOURCES property/split_plan_test.cc DEPS tandem_base)
