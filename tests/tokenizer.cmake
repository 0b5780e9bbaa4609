# Tests of tokenizer.
tandem_test(tokenizer_golden_test
  SOURCES unit/tokenizer/golden_test.cc
  DEPS tandem_tokenizer zstd::libzstd_shared)
tandem_fuzz_test(tokenizer_json_fuzz SOURCES fuzz/tokenizer_json_fuzz.cc DEPS tandem_tokenizer
  CORPUS fuzz/corpus/tokenizer_json)
