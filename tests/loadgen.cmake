# Tests of bench/serving, as far as they need no server; those that do are in server.cmake.
tandem_test(loadgen_test
  SOURCES unit/loadgen/arrivals_test.cc unit/loadgen/distribution_test.cc
          unit/loadgen/goodput_test.cc unit/loadgen/lengths_test.cc
          unit/loadgen/openai_messages_test.cc unit/loadgen/report_test.cc
          unit/loadgen/runner_test.cc unit/loadgen/sse_parser_test.cc unit/loadgen/summary_test.cc
          unit/loadgen/sweep_comparison_test.cc
          unit/loadgen/sweep_plan_test.cc unit/loadgen/sweep_test.cc unit/loadgen/sweep_workload_test.cc
          unit/loadgen/trace_test.cc
          unit/loadgen/workload_test.cc
  DEPS tandem_loadgen)
tandem_fuzz_test(trace_fuzz SOURCES fuzz/trace_fuzz.cc DEPS tandem_workload CORPUS fuzz/corpus/trace)
tandem_fuzz_test(openai_stream_fuzz SOURCES fuzz/openai_stream_fuzz.cc DEPS tandem_loadgen
  CORPUS fuzz/corpus/openai_stream)
