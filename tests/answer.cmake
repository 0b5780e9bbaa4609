# Tests of model/answer.
tandem_test(answer_test
  SOURCES unit/answer/answer_reader_test.cc unit/answer/find_markup_test.cc
  DEPS tandem_answer
  LABELS unit)
tandem_watch_stack(answer_test)
tandem_fuzz_test(answer_reader_fuzz SOURCES fuzz/answer_reader_fuzz.cc DEPS tandem_answer
  CORPUS fuzz/corpus/answer_reader)
tandem_bench(markup_lines SOURCES golden/markup_lines.cc DEPS tandem_answer)
