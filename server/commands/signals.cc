#include "server/commands/signals.h"

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <chrono>

namespace tandem {
namespace {

sigset_t TerminationSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void BlockTerminationSignals() {
  const sigset_t set = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ,
         SIG_IGN);  // exceeding a limit on files, shared memory included, is an error to handle
}

void WaitForTermination(Duration interval, const std::function<void()>& meanwhile) {
  const sigset_t set = TerminationSignals();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(interval);
  const timespec pause = {.tv_sec = seconds.count(),
                          .tv_nsec = static_cast<long>((interval - seconds).count())};
  while (sigtimedwait(&set, nullptr, &pause) < 0) {
    if (errno == EAGAIN) meanwhile();
  }
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace tandem
