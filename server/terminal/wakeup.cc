#include "server/terminal/wakeup.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/check.h"
#include "fmt/format.h"

namespace tandem::terminal {
namespace {

// Global, because a signal handler has no other way to find the objects that it works with.
std::atomic<Wakeup*> g_wakeup = nullptr;
std::atomic<bool> g_interrupted = false;
std::atomic<bool> g_resized = false;
std::atomic<bool> g_continued = false;

void OnSignal(int signal) {
  const int error = errno;
  if (signal == SIGINT) g_interrupted = true;
  if (signal == SIGWINCH) g_resized = true;
  if (signal == SIGCONT) g_continued = true;
  if (Wakeup* wakeup = g_wakeup) wakeup->Wake();
  errno = error;
}

constexpr int kSignals[] = {SIGINT, SIGWINCH, SIGCONT};

void SetHandlers(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // a thread that must notice a signal waits on the Wakeup
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

}  // namespace

Wakeup::Wakeup() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TANDEM_CHECK(event_.valid(), fmt::format("no eventfd: {}", ErrnoMessage(errno)));
}

void Wakeup::Wake() {
  const uint64_t one = 1;
  // It fails only where so many wakes are pending that one more makes no difference.
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof(one));
}

void Wakeup::Clear() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_.get(), &count, sizeof(count));
}

void Wakeup::Wait() { WaitFor(-1); }

bool Wakeup::WaitFor(int fd) {
  pollfd fds[] = {{.fd = event_.get(), .events = POLLIN, .revents = 0},
                  {.fd = fd, .events = POLLIN, .revents = 0}};  // poll skips a negative descriptor
  while (poll(fds, 2, -1) < 0) {
    TANDEM_CHECK(errno == EINTR || errno == EAGAIN, fmt::format("poll: {}", ErrnoMessage(errno)));
  }
  Clear();
  return fds[1].revents != 0;
}

TerminalSignals::TerminalSignals(Wakeup& wakeup) {
  g_wakeup = &wakeup;
  SetHandlers(OnSignal);
}

TerminalSignals::~TerminalSignals() {
  SetHandlers(SIG_DFL);
  g_wakeup = nullptr;
}

bool TerminalSignals::TakeInterrupt() { return g_interrupted.exchange(false); }
bool TerminalSignals::TakeResize() { return g_resized.exchange(false); }
bool TerminalSignals::TakeContinue() { return g_continued.exchange(false); }

}  // namespace tandem::terminal
