# The only find_package calls. All packages are Debian's (tools/install_deps.sh installs them).
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)
# AVX-512, AVX2 and the baseline are what each vectorised file is compiled for, and what the tests of
# equal bits compare. The targets between them would cost compile time and serve no machine better. So
# would those beyond AVX-512, whose bits are the lower ones: newer releases of Highway add some.
set(disabled "HWY_SSSE3|HWY_SSE4|(HWY_AVX3-1)")
target_compile_definitions(hwy::hwy INTERFACE "HWY_DISABLED_TARGETS=(${disabled})")
# TANDEM_QUICK compiles for the target of this machine alone. kernels/cpu/processor.h refuses other machines.
if(TANDEM_QUICK AND EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo features REGEX "^flags" LIMIT_COUNT 1)
  set(target "")
  if(features MATCHES " avx512bw " AND features MATCHES " avx512vl")
    set(target HWY_AVX3)
  elseif(features MATCHES " avx2 ")
    set(target HWY_AVX2)
  endif()
  if(target)
    target_compile_definitions(hwy::hwy INTERFACE HWY_BASELINE_TARGETS=${target} HWY_COMPILE_ONLY_STATIC)
  endif()
endif()
find_package(zstd CONFIG REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(icu REQUIRED IMPORTED_TARGET icu-uc)

if(TANDEM_GRPC)
  find_package(Protobuf 3.21 REQUIRED)
  find_package(gRPC CONFIG REQUIRED)
  find_package(CLI11 CONFIG REQUIRED)
  find_package(CURL 7.88 REQUIRED)
  pkg_check_modules(libedit IMPORTED_TARGET libedit)  # editing of lines in tandem chat
  find_package(Boost 1.74 CONFIG REQUIRED)  # headers alone, for server/http
endif()
if(TANDEM_TESTS)
  find_package(GTest CONFIG REQUIRED)
  find_package(Boost CONFIG REQUIRED COMPONENTS context)  # the emulated GPU's lanes
endif()

include(find_cuda)
if(TANDEM_NCCL_INCLUDE)
  message(STATUS "NCCL: ON ${TANDEM_NCCL_INCLUDE}")
else()
  message(STATUS "NCCL: OFF")
endif()
