# Tests of tokenizer.
tandem_test(tokenizer_test
  SOURCES unit/tokenizer/added_tokens_test.cc unit/tokenizer/bpe_test.cc
          unit/tokenizer/encode_parts_test.cc
          unit/tokenizer/detokenizer_test.cc unit/tokenizer/normalizer_test.cc
          unit/tokenizer/pre_tokenizer_test.cc unit/tokenizer/regex_test.cc
          unit/tokenizer/tokenizer_json_test.cc
  DEPS tandem_tokenizer
  LABELS unit)
tandem_test(tokenizer_golden_test
  SOURCES unit/tokenizer/golden_test.cc
  DEPS tandem_tokenizer zstd::libzstd_shared
  LABELS golden
  TIMEOUT 600)
tandem_fuzz_test(tokenizer_json_fuzz SOURCES fuzz/tokenizer_json_fuzz.cc DEPS tandem_tokenizer
  CORPUS fuzz/corpus/tokenizer_json)
