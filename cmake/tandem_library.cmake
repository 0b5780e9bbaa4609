# One target per concept.
#   tandem_library(NAME SOURCES a.cc ... DEPS lib ...)     target tandem_NAME, a static library
#   tandem_test(NAME SOURCES a_test.cc ... DEPS lib ...
#               [LABELS l ...] [TIMEOUT seconds] [ARGS ...]) a gtest binary and one ctest of that name
#   tandem_fuzz_test(NAME SOURCES a_fuzz.cc DEPS lib ... CORPUS directory [TIMEOUT seconds])
#                       a ctest that replays the corpus and seeded mutations of it (tests/fuzz/
#                       replay_main.cc); with TANDEM_FUZZ=ON also NAME_libfuzzer, which explores
#   tandem_bench(NAME SOURCES a.cc ... DEPS lib ...)       a program under bin/
function(tandem_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_library(tandem_${name} STATIC ${arg_SOURCES})
  target_include_directories(tandem_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(tandem_${name} PUBLIC ${arg_DEPS})
endfunction()

set(TANDEM_TEST_ROOT ${CMAKE_SOURCE_DIR} CACHE STRING
    "Where tests find the files of this tree when they run")

function(tandem_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS;ARGS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE TANDEM_SOURCE_DIR="${TANDEM_TEST_ROOT}")
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  foreach(source ${arg_SOURCES})
    file(REAL_PATH ${source} path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_property(GLOBAL APPEND PROPERTY TANDEM_REGISTERED_TESTS ${path})
  endforeach()
endfunction()

function(tandem_fuzz_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;CORPUS" "SOURCES;DEPS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cc)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  file(REAL_PATH ${arg_CORPUS} corpus BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME ${name} COMMAND ${name} ${corpus})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS fuzz)
  foreach(source ${arg_SOURCES})
    file(REAL_PATH ${source} path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_property(GLOBAL APPEND PROPERTY TANDEM_REGISTERED_TESTS ${path})
  endforeach()
  if(TANDEM_FUZZ)
    add_executable(${name}_libfuzzer ${arg_SOURCES})
    target_include_directories(${name}_libfuzzer PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name}_libfuzzer PRIVATE ${arg_DEPS})
    target_link_options(${name}_libfuzzer PRIVATE -fsanitize=fuzzer)
  endif()
endfunction()

function(tandem_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
endfunction()
