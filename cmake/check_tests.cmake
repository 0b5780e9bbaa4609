# Fails the configure step when a test file is not part of a registered test: a test that never runs
# is worse than none. Included at the end of tests/CMakeLists.txt.
get_property(registered GLOBAL PROPERTY TANDEM_REGISTERED_TESTS)
file(GLOB_RECURSE present ${CMAKE_SOURCE_DIR}/tests/*_test.cc ${CMAKE_SOURCE_DIR}/tests/*_fuzz.cc)
foreach(path ${present})
  if(NOT path IN_LIST registered AND (TANDEM_GRPC OR NOT path MATCHES "/(router|server|integration|fault)/"))
    message(FATAL_ERROR "${path} is not registered: add it to a tandem_test in tests/")
  endif()
endforeach()
