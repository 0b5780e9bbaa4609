# Tests of model/chat.
tandem_test(chat_test
  SOURCES unit/chat/chat_golden_test.cc unit/chat/chat_template_test.cc unit/chat/input_marks_test.cc
          unit/chat/jinja_limits_test.cc unit/chat/jinja_test.cc
  DEPS tandem_chat tandem_tokenizer
  LABELS unit)
tandem_watch_stack(chat_test)
tandem_fuzz_test(chat_template_fuzz SOURCES fuzz/chat_template_fuzz.cc DEPS tandem_chat
  CORPUS fuzz/corpus/chat_template)
# For tests/golden/compare_templates.py and compare_random_templates.py.
tandem_bench(jinja_lines SOURCES golden/jinja_lines.cc DEPS tandem_chat)
