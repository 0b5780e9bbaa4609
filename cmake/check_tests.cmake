# Fails the configure step when a test file is not part of a registered test: a test that never runs
# is worse than none. Included at the end of tests/CMakeLists.txt.
get_property(registered GLOBAL PROPERTY TANDEM_REGISTERED_TESTS)
file(GLOB_RECURSE present ${CMAKE_SOURCE_DIR}/tests/*_test.cc ${CMAKE_SOURCE_DIR}/tests/*_fuzz.cc)
# Without gRPC the rooms above the engine are left out, with all that their files name.
set(left_out "")
if(NOT TANDEM_GRPC)
  foreach(room router simulator openai server fault)
    file(READ ${CMAKE_CURRENT_SOURCE_DIR}/${room}.cmake text)
    string(APPEND left_out "${text}")
  endforeach()
endif()
foreach(path ${present})
  file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${path})
  string(FIND "${left_out}" "${name}" found)
  if(NOT TANDEM_GRPC AND name MATCHES "^integration/")
    set(found 0)  # server.cmake makes these names in a loop
  endif()
  if(NOT path IN_LIST registered AND found EQUAL -1)
    message(FATAL_ERROR "${path} is not registered: add it to a tandem_test in tests/")
  endif()
endforeach()
