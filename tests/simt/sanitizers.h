#pragma once

// Which sanitizer this is compiled for: SIMT_ASAN, SIMT_TSAN or none of them.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define SIMT_TSAN 1
#endif

#if defined(SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif
