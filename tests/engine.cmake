# Tests of engine.
tandem_library(test_engine
  SOURCES support/handoff_pair.cc support/recording_sink.cc support/test_engine.cc
          support/test_model.cc
  DEPS tandem_engine GTest::gtest)
target_compile_definitions(tandem_test_engine PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")

tandem_test(same_answer_test SOURCES unit/engine/same_answer_test.cc DEPS tandem_test_engine
            TIMEOUT 600)
