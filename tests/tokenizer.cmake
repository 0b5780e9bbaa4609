# Tests of tokenizer.
tandem_test(tokenizer_golden_test
  SOURCES unit/tokenizer/golden_test.cc
  DEPS tandem_tokenizer zstd::libzstd_shared)
