#include "base/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "fmt/format.h"

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kPatience(100);
// When poll reports that a pipe is writable, it takes this many bytes without blocking.
constexpr size_t kAtomicBytes = 4096;

bool AwaitWritable(int fd, std::chrono::milliseconds timeout) {
  pollfd writable = {.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&writable, 1, static_cast<int>(timeout.count())) > 0;
}

std::string SentenceNote(uint64_t missing) {
  return fmt::format("({} lines are missing here: nobody read them in time)", missing);
}

}  // namespace

LineWriter::LineWriter(int fd) : fd_(fd), kind_(Kind::kBlocking), note_(&SentenceNote) {
  struct stat info;
  if (fstat(fd, &info) != 0) return;
  if (S_ISSOCK(info.st_mode)) {
    kind_ = Kind::kSocket;
  } else if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
    own_ = UniqueFd(open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                         O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!own_.valid()) return;
    fd_ = own_.get();
    kind_ = Kind::kNonBlocking;
  }
}

void LineWriter::SetNote(Note note) {
  absl::MutexLock lock(&mutex_);
  note_ = note;
}

void LineWriter::Write(std::string_view line) {
  absl::MutexLock lock(&mutex_);
  if (unreported_ > 0) {
    const std::string note = (in_line_ ? "\n" : "") + note_(unreported_) + "\n";
    if (Send(note)) unreported_ = 0;
  }
  if (unreported_ == 0 && Send(line)) return;
  ++unreported_;
  ++dropped_;
}

bool LineWriter::Send(std::string_view text) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const size_t size = text.size();
  while (!text.empty()) {
    const ssize_t sent = SendPart(text);
    if (sent >= 0) {
      text.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (errno == EAGAIN && !stalled_ && left.count() > 0 && AwaitWritable(fd_, left)) continue;
    in_line_ = in_line_ || text.size() < size;
    stalled_ = true;
    return false;
  }
  stalled_ = in_line_ = false;
  return true;
}

ssize_t LineWriter::SendPart(std::string_view text) const {
  switch (kind_) {
    case Kind::kNonBlocking:
      return write(fd_, text.data(), text.size());
    case Kind::kSocket:
      return send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    case Kind::kBlocking:
      break;
  }
  if (!AwaitWritable(fd_, std::chrono::milliseconds(0))) {
    errno = EAGAIN;
    return -1;
  }
  return write(fd_, text.data(), std::min(text.size(), kAtomicBytes));
}

}  // namespace tandem
