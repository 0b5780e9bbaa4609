#include "server/commands/output_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/status.h"

namespace tandem {
namespace {

std::string NewFile(const std::string& path) { return path + ".new"; }

}  // namespace

absl::Status CheckWritable(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const bool writable = std::ofstream(NewFile(path)).good();
  std::error_code ignored;
  std::filesystem::remove(NewFile(path), ignored);
  if (writable && !std::filesystem::is_directory(path, ignored)) return absl::OkStatus();
  return InvalidArgument("{} cannot be written: choose another file", path);
}

absl::Status WriteWhole(const std::string& path, const std::string& content) {
  std::ofstream file(NewFile(path), std::ios::binary);
  file << content;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(NewFile(path), path, error);
  if (file && !error) return absl::OkStatus();
  return Internal("{} cannot be written: {}", path,
                  error ? error.message() : "the disk may be full");
}

}  // namespace tandem
