# One target per concept.
#   tandem_library(NAME SOURCES a.cc ... DEPS lib ... [ONE_BY_ONE]) target tandem_NAME, a static library
#   tandem_test(NAME SOURCES a_test.cc ... DEPS lib ...
#               [LABELS l ...] [TIMEOUT seconds] [ARGS ...]) a gtest binary and one ctest of that name
#   tandem_long_test(NAME COMMAND ... [ENVIRONMENT A=B])    a ctest of make test-long alone
#   tandem_fuzz_test(NAME SOURCES a_fuzz.cc DEPS lib ... CORPUS directory [TIMEOUT seconds])
#                       a ctest that replays the corpus and seeded mutations of it (tests/fuzz/
#                       replay_main.cc); with TANDEM_FUZZ=ON also NAME_libfuzzer, which explores and
#                       is built by the target fuzzers
#   tandem_bench(NAME SOURCES a.cc ... DEPS lib ...)       a program under bin/
# What uses gRPC, known by what it is linked with.
set(TANDEM_GRPC_USERS tandem_proto tandem_router tandem_server tandem_test_cluster gRPC::grpc++)

# tandem_precompile(TARGET DEPS lib ... [TEST]) chooses the target's precompiled headers
# (precompiled.cmake).
function(tandem_precompile name)
  cmake_parse_arguments(arg "TEST" "" "DEPS" ${ARGN})
  set(headers tandem_headers)
  foreach(dep ${arg_DEPS})
    if(dep IN_LIST TANDEM_GRPC_USERS)
      set(headers tandem_headers_grpc)
    endif()
  endforeach()
  if(arg_TEST)
    set(headers ${headers}_test)
    tandem_optimise_as_test(${name})
  endif()
  if(TANDEM_PRECOMPILED)
    target_precompile_headers(${name} REUSE_FROM ${headers})
  endif()
endfunction()

# Small files cost the compiler more for the headers that they include than for what they say, so
# several files of a target are compiled as one. A target whose files the compiler takes long for says
# ONE_BY_ONE, so that an edit compiles no other file again.
function(tandem_compile_together name)
  if(TANDEM_PRECOMPILED)
    set_property(GLOBAL APPEND PROPERTY TANDEM_TOGETHER ${name})
  endif()
endfunction()

# Called when all targets have their sources. CMake's own UNITY_BUILD would write absolute paths into the
# files, so that no clone found in the compiler cache what another one has compiled. A source that has
# definitions of its own, or that is generated, is compiled by itself.
set(TANDEM_FILES_TOGETHER 16)
function(tandem_join_sources)
  get_property(targets GLOBAL PROPERTY TANDEM_TOGETHER)
  foreach(target ${targets})
    get_target_property(sources ${target} SOURCES)
    get_target_property(directory ${target} SOURCE_DIR)
    set(alone "")
    set(joined "")
    foreach(source ${sources})
      file(REAL_PATH "${source}" path BASE_DIRECTORY ${directory})
      file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR} ${path})
      get_source_file_property(definitions ${path} TARGET_DIRECTORY ${target} COMPILE_DEFINITIONS)
      get_source_file_property(generated ${path} TARGET_DIRECTORY ${target} GENERATED)
      if(source MATCHES "^\\$<" OR definitions OR generated OR NOT path MATCHES "\\.cc$")
        list(APPEND alone ${source})
      else()
        list(APPEND joined ${relative})
      endif()
    endforeach()
    list(LENGTH joined count)
    if(count GREATER 1)
      tandem_write_joined(${target} "${joined}" files)
      set_property(TARGET ${target} PROPERTY SOURCES ${files} ${alone})
    endif()
  endforeach()
endfunction()

# Writes files that include the sources, TANDEM_FILES_TOGETHER each.
function(tandem_write_joined target sources out)
  get_target_property(directory ${target} BINARY_DIR)
  set(files "")
  set(text "")
  set(count 0)
  list(LENGTH sources total)
  foreach(source ${sources})
    string(APPEND text "#include \"${source}\"\n")
    math(EXPR count "${count} + 1")
    math(EXPR rest "${count} % ${TANDEM_FILES_TOGETHER}")
    if(rest EQUAL 0 OR count EQUAL total)
      list(LENGTH files index)
      set(file ${directory}/together/${target}_${index}.cc)
      file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
      list(APPEND files ${file})
      set(text "")
    endif()
  endforeach()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

function(tandem_library name)
  cmake_parse_arguments(arg "ONE_BY_ONE" "" "SOURCES;DEPS" ${ARGN})
  add_library(tandem_${name} STATIC ${arg_SOURCES})
  target_include_directories(tandem_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(tandem_${name} PUBLIC ${arg_DEPS})
  if(NOT GTest::gtest IN_LIST arg_DEPS)
    tandem_precompile(tandem_${name} DEPS ${arg_DEPS})
  else()
    tandem_precompile(tandem_${name} DEPS ${arg_DEPS} TEST)
  endif()
  if(NOT arg_ONE_BY_ONE)
    tandem_compile_together(tandem_${name})
  endif()
endfunction()

set(TANDEM_TEST_ROOT ${CMAKE_SOURCE_DIR} CACHE STRING
    "Where tests find the files of this tree when they run")

# tandem_define_paths(SOURCE ...) defines, for the sources that mention them alone, the absolute paths of
# this tree and of its programs: a path on the command line of every file would keep clones from finding
# each other's objects in the compiler cache.
function(tandem_define_paths)
  foreach(source ${ARGN})
    file(REAL_PATH ${source} path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set(paths "")
    file(STRINGS ${path} lines REGEX "TANDEM_(SOURCE_DIR|BINARY|EMULATED_BINARY)")
    if(lines MATCHES "TANDEM_SOURCE_DIR")
      list(APPEND paths TANDEM_SOURCE_DIR="${TANDEM_TEST_ROOT}")
    endif()
    if(lines MATCHES "TANDEM_BINARY")
      list(APPEND paths TANDEM_BINARY="$<TARGET_FILE:tandem>")
    endif()
    if(lines MATCHES "TANDEM_EMULATED_BINARY")
      list(APPEND paths TANDEM_EMULATED_BINARY="$<TARGET_FILE:tandem_emulated>")
    endif()
    if(paths)
      set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS "${paths}")
    endif()
  endforeach()
endfunction()

# tandem_watch_stack(TEST ...) makes AddressSanitizer also watch for locals that are used after their
# function has returned. That must not be asked of programs that switch stacks, which the lanes of the
# emulated GPU do.
function(tandem_watch_stack)
  if(TANDEM_SANITIZE STREQUAL "address")
    set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT_MODIFICATION
                 "ASAN_OPTIONS=string_append::detect_stack_use_after_return=1")
  endif()
endfunction()

# The tests of a room: label ROOM of ctest, and target ROOM_tests. tests/CMakeLists.txt sets the room.
function(tandem_room_test name)
  if(TANDEM_ROOM)
    set_property(TEST ${name} APPEND PROPERTY LABELS ${TANDEM_ROOM})
    add_dependencies(${TANDEM_ROOM}_tests ${name})
  endif()
endfunction()

function(tandem_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS;ARGS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name})
  set_property(GLOBAL APPEND PROPERTY TANDEM_TEST_PROGRAMS ${name})
  set_property(TARGET ${name} PROPERTY TANDEM_TEST_SOURCES ${arg_SOURCES})
  set_property(TARGET ${name} PROPERTY TANDEM_TEST_DEPS ${arg_DEPS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  tandem_define_paths(${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  if(NOT arg_DEPS STREQUAL tandem_simt)  # which is built without fmt and absl, as its tests are
    tandem_precompile(${name} DEPS ${arg_DEPS} TEST)
  endif()
  tandem_compile_together(${name})
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  # Those that may take longer are started first.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT}
                                          LABELS "${arg_LABELS}")
  tandem_room_test(${name})
  foreach(source ${arg_SOURCES})
    file(REAL_PATH ${source} path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_property(GLOBAL APPEND PROPERTY TANDEM_REGISTERED_TESTS ${path})
  endforeach()
endfunction()

# A source that several test programs name is compiled once, with the flags of the first of them.
function(tandem_test_object source deps out)
  string(REGEX REPLACE "[^a-zA-Z0-9]" "_" name "test_object_${source}")
  if(NOT TARGET ${name})
    add_library(${name} OBJECT ${source})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE ${deps} GTest::gmock)
    tandem_precompile(${name} DEPS ${deps} TEST)
  endif()
  set(${out} ${name} PARENT_SCOPE)
endfunction()

# Called when all tests are registered: gives each program its sources.
function(tandem_finish_tests)
  get_property(programs GLOBAL PROPERTY TANDEM_TEST_PROGRAMS)
  set(all "")
  foreach(program ${programs})
    get_target_property(sources ${program} TANDEM_TEST_SOURCES)
    list(APPEND all ${sources})
  endforeach()
  foreach(program ${programs})
    get_target_property(sources ${program} TANDEM_TEST_SOURCES)
    get_target_property(deps ${program} TANDEM_TEST_DEPS)
    foreach(source ${sources})
      set(users ${all})
      list(FILTER users INCLUDE REGEX "^${source}$")
      list(LENGTH users count)
      if(count EQUAL 1)
        target_sources(${program} PRIVATE ${source})
      else()
        tandem_test_object(${source} "${deps}" object)
        target_sources(${program} PRIVATE $<TARGET_OBJECTS:${object}>)
      endif()
    endforeach()
  endforeach()
endfunction()

# What takes too long for make test: make test-long runs it (label long, which the test presets leave
# out). ENVIRONMENT as of set_tests_properties.
function(tandem_long_test name)
  cmake_parse_arguments(arg "" "ENVIRONMENT" "COMMAND" ${ARGN})
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS long TIMEOUT 14400 RUN_SERIAL TRUE
                       ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

if(TANDEM_FUZZ)
  add_custom_target(fuzzers)
endif()

function(tandem_fuzz_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;CORPUS" "SOURCES;DEPS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cc)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  tandem_precompile(${name} DEPS ${arg_DEPS})
  tandem_compile_together(${name})
  file(REAL_PATH ${arg_CORPUS} corpus BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME ${name} COMMAND ${name} ${corpus})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS fuzz)
  tandem_room_test(${name})
  foreach(source ${arg_SOURCES})
    file(REAL_PATH ${source} path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_property(GLOBAL APPEND PROPERTY TANDEM_REGISTERED_TESTS ${path})
  endforeach()
  if(TANDEM_FUZZ)
    add_executable(${name}_libfuzzer ${arg_SOURCES})
    target_include_directories(${name}_libfuzzer PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name}_libfuzzer PRIVATE ${arg_DEPS})
    target_link_options(${name}_libfuzzer PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name}_libfuzzer)
  endif()
endfunction()

function(tandem_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  tandem_precompile(${name} DEPS ${arg_DEPS})
  tandem_compile_together(${name})
endfunction()
