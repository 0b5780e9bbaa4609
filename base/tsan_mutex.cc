// Part of the thread-sanitizer build only. The packaged Abseil is not instrumented, so the
// sanitizer does not see that its Mutex, CondVar, Notification and Status order memory and reports
// races on the data that they guard. The linker (cmake/compiler.cmake) redirects our calls of them
// to this file, which declares the order to the sanitizer.
#include <cstdint>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "spdlog/spdlog.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}

#define TANDEM_JOIN_INNER(a, b, c) a##b##c
#define TANDEM_JOIN(a, b, c) TANDEM_JOIN_INNER(a, b, c)
// TANDEM_ABSL_NAMESPACE: the mangled inline namespace of the package, such as 7debian3.
#define REAL(prefix, rest) TANDEM_JOIN(__real_##prefix##4absl, TANDEM_ABSL_NAMESPACE, rest)
#define WRAP(prefix, rest) TANDEM_JOIN(__wrap_##prefix##4absl, TANDEM_ABSL_NAMESPACE, rest)

namespace {

// spdlog creates its registry at its first use, which the sanitizer does not see either. Creating
// it before any thread starts avoids the report.
[[maybe_unused]] const spdlog::logger* const kLoggerBeforeThreads = spdlog::default_logger_raw();

// Wraps a condition, because any thread that holds the mutex may evaluate it.
struct OrderedCondition {
  absl::Mutex* mutex;
  const absl::Condition* condition;

  bool Eval() const {
    __tsan_acquire(mutex);
    const bool holds = condition->Eval();
    __tsan_release(mutex);
    return holds;
  }
};

}  // namespace

extern "C" {

void REAL(_ZN, 5Mutex4LockEv)(absl::Mutex* mutex);
void WRAP(_ZN, 5Mutex4LockEv)(absl::Mutex* mutex) {
  REAL(_ZN, 5Mutex4LockEv)(mutex);
  __tsan_acquire(mutex);
}

void REAL(_ZN, 5Mutex6UnlockEv)(absl::Mutex* mutex);
void WRAP(_ZN, 5Mutex6UnlockEv)(absl::Mutex* mutex) {
  __tsan_release(mutex);
  REAL(_ZN, 5Mutex6UnlockEv)(mutex);
}

void REAL(_ZN, 5Mutex5AwaitERKNS0_9ConditionE)(absl::Mutex* mutex, const absl::Condition& until);
void WRAP(_ZN, 5Mutex5AwaitERKNS0_9ConditionE)(absl::Mutex* mutex, const absl::Condition& until) {
  const OrderedCondition ordered{mutex, &until};
  __tsan_release(mutex);
  REAL(_ZN, 5Mutex5AwaitERKNS0_9ConditionE)
  (mutex, absl::Condition(&ordered, &OrderedCondition::Eval));
  __tsan_acquire(mutex);
}

bool REAL(_ZN,
          5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE)(absl::Mutex* mutex,
                                                                    const absl::Condition& until,
                                                                    absl::Duration timeout);
bool WRAP(_ZN,
          5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE)(absl::Mutex* mutex,
                                                                    const absl::Condition& until,
                                                                    absl::Duration timeout) {
  const OrderedCondition ordered{mutex, &until};
  __tsan_release(mutex);
  const bool held = REAL(_ZN, 5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE)(
      mutex, absl::Condition(&ordered, &OrderedCondition::Eval), timeout);
  __tsan_acquire(mutex);
  return held;
}

void REAL(_ZN, 7CondVar4WaitEPNS0_5MutexE)(absl::CondVar* variable, absl::Mutex* mutex);
void WRAP(_ZN, 7CondVar4WaitEPNS0_5MutexE)(absl::CondVar* variable, absl::Mutex* mutex) {
  __tsan_release(mutex);
  REAL(_ZN, 7CondVar4WaitEPNS0_5MutexE)(variable, mutex);
  __tsan_acquire(mutex);
}

bool REAL(_ZN, 7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)(absl::CondVar* variable,
                                                                     absl::Mutex* mutex,
                                                                     absl::Duration timeout);
bool WRAP(_ZN, 7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)(absl::CondVar* variable,
                                                                     absl::Mutex* mutex,
                                                                     absl::Duration timeout) {
  __tsan_release(mutex);
  const bool timed_out =
      REAL(_ZN, 7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)(variable, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

void REAL(_ZN, 12Notification6NotifyEv)(absl::Notification* notification);
void WRAP(_ZN, 12Notification6NotifyEv)(absl::Notification* notification) {
  __tsan_release(notification);
  REAL(_ZN, 12Notification6NotifyEv)(notification);
}

void REAL(_ZNK, 12Notification19WaitForNotificationEv)(const absl::Notification* notification);
void WRAP(_ZNK, 12Notification19WaitForNotificationEv)(const absl::Notification* notification) {
  REAL(_ZNK, 12Notification19WaitForNotificationEv)(notification);
  __tsan_acquire(const_cast<absl::Notification*>(notification));
}

bool REAL(_ZNK, 12Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(
    const absl::Notification* notification, absl::Duration timeout);
bool WRAP(_ZNK, 12Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(
    const absl::Notification* notification, absl::Duration timeout) {
  const bool notified = REAL(_ZNK, 12Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(
      notification, timeout);
  __tsan_acquire(const_cast<absl::Notification*>(notification));
  return notified;
}

// Drops one reference to the heap representation of a status; the last reference frees it. The
// count is its first member; `rep` points one byte behind its beginning.
void REAL(_ZN, 6Status15UnrefNonInlinedEm)(uintptr_t rep);
void WRAP(_ZN, 6Status15UnrefNonInlinedEm)(uintptr_t rep) {
  void* const count = reinterpret_cast<void*>(rep - 1);
  __tsan_release(count);
  __tsan_acquire(count);
  REAL(_ZN, 6Status15UnrefNonInlinedEm)(rep);
}

}  // extern "C"
