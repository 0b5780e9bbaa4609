#pragma once

#include <cstdio>
#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/support/call_site.h"
#include "tests/support/sanitized.h"

namespace tandem {

// The longest that a test waits for an event that must come. Sanitizers and the emulated GPU
// (TANDEM_TEST_DEVICE) are slower by an order of magnitude, so they get ten times as long.
inline absl::Duration WaitLimit() {
  const bool is_slow = kIsSanitized || std::getenv("TANDEM_TEST_DEVICE") != nullptr;
  return absl::Seconds(is_slow ? 200 : 20);
}

// Ends the process with the name of the test and the line of its wait. The process cannot go on:
// the event may still come and write into objects of a test that has returned.
[[noreturn]] inline void FailWait(const char* awaited, CallSite line) {
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  std::fprintf(stderr, "%s:%u: %s.%s has waited %s for %s\n", line.file, line.line,
               test ? test->test_suite_name() : "no", test ? test->name() : "test",
               absl::FormatDuration(WaitLimit()).c_str(), awaited);
  std::fflush(stderr);
  std::abort();
}

// Waits until `condition` holds. The caller holds `mutex`.
inline void AwaitWithin(absl::Mutex& mutex, const absl::Condition& condition, const char* awaited,
                        CallSite line) ABSL_SHARED_LOCKS_REQUIRED(mutex) {
  if (!mutex.AwaitWithTimeout(condition, WaitLimit())) FailWait(awaited, line);
}

// Waits for a notification that must come.
inline void Await(const absl::Notification& event, CallSite line = CallSite::Current()) {
  if (!event.WaitForNotificationWithTimeout(WaitLimit())) FailWait("a notification", line);
}

}  // namespace tandem
