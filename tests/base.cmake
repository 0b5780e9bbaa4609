# Tests of base.
tandem_test(thread_pool_test SOURCES unit/base/thread_pool_test.cc DEPS tandem_base)
tandem_test(base_test
  SOURCES unit/base/block_hash_test.cc unit/base/bounded_queue_test.cc unit/base/condition_variable_test.cc unit/base/finish_reason_test.cc unit/base/hash_test.cc unit/base/histogram_test.cc
          unit/base/host_port_test.cc unit/base/json_test.cc unit/base/kv_shape_test.cc unit/base/line_writer_test.cc unit/base/log_record_test.cc unit/base/sampling_params_test.cc
          unit/base/retry_after_test.cc unit/base/rng_test.cc unit/base/status_test.cc
          unit/base/token_constraints_test.cc unit/base/token_eviction_test.cc
          unit/base/utf8_test.cc
  DEPS tandem_base
  LABELS unit)
tandem_fuzz_test(token_eviction_fuzz SOURCES fuzz/token_eviction_fuzz.cc DEPS tandem_base
  CORPUS fuzz/corpus/token_eviction)
tandem_fuzz_test(retry_after_fuzz SOURCES fuzz/retry_after_fuzz.cc DEPS tandem_base
  CORPUS fuzz/corpus/retry_after)
