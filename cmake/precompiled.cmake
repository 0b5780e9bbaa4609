# Precompiled headers of foreign libraries: parsing them is a third of what a small file costs. Each
# set is compiled once and used by all targets of its kind (tandem_library.cmake chooses):
#   tandem_headers            the standard library, absl, fmt
#   tandem_headers_grpc       and protobuf, gRPC, nlohmann's JSON
#   tandem_headers_test       as tandem_headers, and gtest, gmock, JSON
#   tandem_headers_grpc_test  all of these
# A set names installed headers only, in angle brackets, so that it is the same in every clone and the
# compiler cache finds it there. Every file still includes what it uses: TANDEM_PRECOMPILED=OFF compiles
# each file by itself, which make check does.
#
# By default for GCC alone: CMake gives Clang their paths behind -Xclang, where the compiler cache does
# not make them relative, so that no clone would find what another one has compiled.
set(default OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(default ON)
endif()
option(TANDEM_PRECOMPILED "Use precompiled headers, and compile several files of a target as one"
       ${default})
# A precompiled header fits only files that are compiled with the same flags, also of optimisation.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-pthread>")

# Tests call what is optimised, and are long themselves: with -Og the compiler needs a third less time for them
# than with -O2. Without any optimisation it would need no less, since it writes out every function of every
# template then, and the templates that tests share with what they call, such as those of JSON, would be slow
# there, too. All that use the headers of tests are compiled so; with TANDEM_QUICK, for which the compiler's time
# counts more than that of an answer, all but the kernels, too.
function(tandem_optimise_less name)
  set(options -Og)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With -Og GCC follows fewer values and may take a set variable for one that is not.
    list(APPEND options -Wno-maybe-uninitialized)
  endif()
  target_compile_options(${name} PRIVATE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:${options}>")
endfunction()

if(NOT TANDEM_PRECOMPILED)
  return()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 and 13 forget that a precompiled std::string is of a system header, and then tell of bounds
  # that its inlined copies never exceed.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread>")
  # A precompiled header fills the compiler's heap so far that GCC collects garbage again and again. Without
  # that below 512 MiB it needs a tenth less time (6 to 14%), and 1.3 GB at most instead of 1.1.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=524288>")
  # A class of one file may have members of types that only this file sees. Where several files are compiled
  # as one, GCC takes the file for a header, which may not have such members.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>")
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # The compiler cache compares the precompiled header byte by byte.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

set(headers <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <deque> <functional> <limits>
    <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <thread> <tuple>
    <unordered_map> <utility> <variant> <vector>
    <absl/container/flat_hash_map.h> <absl/status/status.h> <absl/status/statusor.h>
    <absl/synchronization/mutex.h> <absl/time/time.h> <fmt/format.h>)
set(grpc_headers <google/protobuf/message.h> <grpcpp/grpcpp.h> <nlohmann/json.hpp>)
set(test_headers <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)

function(tandem_headers name)
  cmake_parse_arguments(arg "" "" "HEADERS;DEPS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/headers/${name}.cc CONTENT "// Empty.\n")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/headers/${name}.cc)
  target_link_libraries(${name} PRIVATE absl::flat_hash_map absl::statusor absl::synchronization
    absl::time fmt::fmt nlohmann_json::nlohmann_json ${arg_DEPS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
  if(${name} MATCHES "_test$" OR (TANDEM_QUICK AND ${name} MATCHES "_grpc"))
    tandem_optimise_less(${name})
  endif()
endfunction()

tandem_headers(tandem_headers HEADERS ${headers})
if(TANDEM_TESTS)
  tandem_headers(tandem_headers_test HEADERS ${headers} ${test_headers} DEPS GTest::gmock)
endif()
if(TANDEM_GRPC)
  tandem_headers(tandem_headers_grpc HEADERS ${headers} ${grpc_headers} DEPS gRPC::grpc++)
endif()
if(TANDEM_GRPC AND TANDEM_TESTS)
  tandem_headers(tandem_headers_grpc_test HEADERS ${headers} ${grpc_headers} ${test_headers}
                 DEPS gRPC::grpc++ GTest::gmock)
endif()
