#include "server/tracing/trace_file_transport.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<TraceFileTransport>> TraceFileTransport::Open(std::string path,
                                                                             uint64_t max_bytes) {
  std::unique_ptr<TraceFileTransport> made(new TraceFileTransport(std::move(path), max_bytes));
  RETURN_IF_ERROR(made->OpenFile());
  return made;
}

absl::Status TraceFileTransport::OpenFile() {
  file_ = UniqueFd(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  struct stat info;
  if (!file_.valid() || fstat(file_.get(), &info) != 0) {
    return InvalidArgument("--trace-file {} cannot be written: {}", path_, std::strerror(errno));
  }
  bytes_ = static_cast<uint64_t>(info.st_size);
  return absl::OkStatus();
}

absl::Status TraceFileTransport::Rotate() {
  const std::string former = path_ + ".1";
  if (std::rename(path_.c_str(), former.c_str()) != 0) {
    return Unavailable("{} cannot be renamed to {}: {}", path_, former, std::strerror(errno));
  }
  return OpenFile();
}

absl::Status TraceFileTransport::Write(const std::string& line) {
  std::string_view left = line;
  while (!left.empty()) {
    const ssize_t written = write(file_.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Unavailable("{}: {}", path_, std::strerror(errno));
    left.remove_prefix(static_cast<size_t>(written));
    bytes_ += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

SendResult TraceFileTransport::Send(const std::string& batch, TimePoint) {
  const std::string line = batch + "\n";
  if (line.size() > max_bytes_) {
    return {.kind = SendResult::Kind::kRefused,
            .why = "one batch is longer than --trace-file-bytes"};
  }
  absl::Status status = file_.valid() ? absl::OkStatus() : OpenFile();
  if (status.ok() && bytes_ + line.size() > max_bytes_) status = Rotate();
  if (status.ok()) status = Write(line);
  if (status.ok()) return {};
  return {.kind = SendResult::Kind::kRefused, .why = status.ToString()};
}

}  // namespace tandem
