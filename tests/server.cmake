# Tests of server, and of whole processes.
tandem_test(server_test
  SOURCES unit/server/generation_test.cc unit/server/parse_message_test.cc
          unit/server/status_mapping_test.cc
  DEPS tandem_server)
