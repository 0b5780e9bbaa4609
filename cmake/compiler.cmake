# Flags of every target. Release is the default: an engine built without optimisation serves nobody.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")

# Sums must not depend on where a compiler fuses a multiply and an add (P2): kernels say it themselves.
# CUDA files have their own flags (kernels/cuda/CMakeLists.txt).
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>")
add_compile_options(
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Werror;-Wno-missing-field-initializers>")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>")
elseif(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # GCC 13 takes each reference from a function that was given a temporary for one into it, also where it is into
  # another argument. GCC 14 no longer has this warning in -Wall.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>")
endif()

if(TANDEM_SANITIZE STREQUAL "address")
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=all;-fno-omit-frame-pointer;-g1>")
  add_link_options(-fsanitize=address,undefined)
elseif(TANDEM_SANITIZE STREQUAL "thread")
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=thread;-g1>")
  add_link_options(-fsanitize=thread)
  # base/tsan_mutex.cc says why. The package's inline namespace is part of each name.
  find_file(absl_options absl/base/options.h REQUIRED)
  file(STRINGS ${absl_options} line REGEX "^#define ABSL_OPTION_INLINE_NAMESPACE_NAME ")
  string(REGEX REPLACE ".* " "" namespace "${line}")
  string(LENGTH "${namespace}" length)
  set(TANDEM_ABSL_NAMESPACE ${length}${namespace})
  foreach(name _ZN@5Mutex4LockEv _ZN@5Mutex6UnlockEv _ZN@5Mutex5AwaitERKNS0_9ConditionE
          _ZN@5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE
          _ZN@7CondVar4WaitEPNS0_5MutexE
          _ZN@7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE
          _ZN@12Notification6NotifyEv _ZNK@12Notification19WaitForNotificationEv
          _ZNK@12Notification30WaitForNotificationWithTimeoutENS0_8DurationE
          _ZN@6Status15UnrefNonInlinedEm)
    string(REPLACE "@" "4absl${TANDEM_ABSL_NAMESPACE}" symbol ${name})
    add_link_options(-Wl,--wrap=${symbol})
  endforeach()
elseif(TANDEM_SANITIZE)
  message(FATAL_ERROR "TANDEM_SANITIZE=${TANDEM_SANITIZE}: use address or thread")
endif()

# Coverage feedback for the NAME_libfuzzer programs of tandem_fuzz_test; best with TANDEM_SANITIZE=address.
option(TANDEM_FUZZ "Build the libFuzzer programs too (needs clang)" OFF)
if(TANDEM_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TANDEM_FUZZ=ON needs clang: set CMAKE_CXX_COMPILER=clang++")
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>")
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths below the source directory are hashed as relative ones, so that every clone and worktree of
  # a machine finds what another one has compiled. Precompiled headers need the two sloppiness flags. The
  # headers that a file includes are known from the list that the compiler writes for ninja; without
  # CCACHE_DEPEND each file that is not in the cache is preprocessed first, a tenth of its time.
  set(CCACHE env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=true CCACHE_DEPEND=true
             CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(LLD ld.lld)
if(LLD)
  add_link_options(-fuse-ld=lld)
endif()
