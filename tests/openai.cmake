# Tests of OpenAI's and Anthropic's APIs over HTTP: texts in and out, without sockets.
tandem_test(openai_test
  SOURCES unit/openai/answer_fields_test.cc unit/openai/answer_test.cc
          unit/openai/body_fields_test.cc
          unit/openai/chat_request_test.cc unit/openai/completion_request_test.cc
          unit/openai/generate_call_test.cc unit/openai/json_body_test.cc
          unit/openai/model_files_test.cc unit/openai/responses_format_test.cc
          unit/openai/responses_request_test.cc unit/openai/token_texts_test.cc
          unit/anthropic/messages_format_test.cc unit/anthropic/messages_request_test.cc
  DEPS tandem_anthropic tandem_openai tandem_proto)
tandem_watch_stack(openai_test)

tandem_fuzz_test(openai_request_fuzz SOURCES fuzz/openai_request_fuzz.cc
  DEPS tandem_anthropic tandem_openai tandem_proto
  CORPUS fuzz/corpus/openai_request)
