#include "server/terminal/chat_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tandem::terminal {
namespace {

constexpr int64_t kMostBytes = 64 << 20;

// The error for a system call that has just failed, by errno.
absl::Status Failed(const std::string& path, std::string_view what) {
  const std::string why = ErrnoMessage(errno);
  return errno == ENOENT ? NotFound("{} {}: {}", path, what, why)
                         : FailedPrecondition("{} {}: {}", path, what, why);
}

absl::Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(path, "cannot be written");
    text.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0 ? absl::OkStatus() : Failed(path, "cannot be written");
}

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) return Failed(path, "cannot be read");
  if (!S_ISREG(info.st_mode)) return InvalidArgument("{} is no regular file", path);
  if (info.st_size > kMostBytes) {
    return InvalidArgument("{} has {} bytes; a chat has at most {}", path, info.st_size,
                           kMostBytes);
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = read(file.get(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(path, "cannot be read");
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  text.resize(have);
  return text;
}

// Refuses to replace a file that holds no chat, because it is somebody's other work.
absl::Status CheckReplaceable(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0 || LoadChat(path).ok()) return absl::OkStatus();
  return FailedPrecondition("{} exists and is no saved chat: give another name, or remove it",
                            path);
}

}  // namespace

std::string ExpandHome(const std::string& path) {
  const char* home = getenv("HOME");
  return path.starts_with("~/") && home != nullptr ? home + path.substr(1) : path;
}

absl::Status SaveChat(const Conversation& chat, const std::string& path) {
  RETURN_IF_ERROR(CheckReplaceable(path));
  std::string draft = path + ".XXXXXX";
  const UniqueFd file(mkostemp(draft.data(), O_CLOEXEC));  // mode 0600
  if (!file.valid()) return Failed(path, "cannot be written");
  absl::Status status = WriteAll(file.get(), chat.ToText(), path);
  if (status.ok() && rename(draft.c_str(), path.c_str()) != 0) {
    status = Failed(path, "cannot be written");
  }
  if (!status.ok()) unlink(draft.c_str());
  return status;
}

absl::StatusOr<Conversation> LoadChat(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadAll(path));
  absl::StatusOr<Conversation> chat = Conversation::Parse(text);
  return chat.ok() ? chat : Annotate(chat.status(), path);
}

}  // namespace tandem::terminal
