# Tests of tracing.
tandem_test(tracing_test
  SOURCES unit/tracing/otlp_json_test.cc unit/tracing/request_trace_test.cc
          unit/tracing/span_exporter_test.cc unit/tracing/trace_context_test.cc
  DEPS tandem_tracing
  LABELS unit)
tandem_fuzz_test(trace_context_fuzz SOURCES fuzz/trace_context_fuzz.cc DEPS tandem_tracing
  CORPUS fuzz/corpus/trace_context)
