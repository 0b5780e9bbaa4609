#include "server/commands/signals.h"

#include <pthread.h>
#include <signal.h>

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
         SIG_IGN);  // a limit on files, which memory to share is too, is an error to handle
}

int WaitForTermination() {
  const sigset_t set = TerminationSignals();
  int received = 0;
  sigwait(&set, &received);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  return received;
}

}  // namespace tandem
