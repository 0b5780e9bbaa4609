#include "server/assembly/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

double Gigabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

// The least of `limit` and the numbers in the files `name` of `folder` and its parents up to `top`.
// The file in `top` counts even if `folder` lies elsewhere. Files without a number, which say
// "max", set no limit.
int64_t LeastUpTo(const fs::path& top, fs::path folder, const char* name, int64_t limit) {
  std::vector<fs::path> folders = {top};
  for (; folder != top && folder.has_relative_path(); folder = folder.parent_path()) {
    folders.push_back(folder);
  }
  for (const fs::path& one : folders) {
    std::ifstream file(one / name);
    std::string text;
    int64_t bytes = 0;
    if (file >> text && absl::SimpleAtoi(text, &bytes) && bytes > 0) limit = std::min(limit, bytes);
  }
  return limit;
}

bool Has(const std::string& controllers, std::string_view one) {
  const std::vector<std::string> all = absl::StrSplit(controllers, ',');
  return std::ranges::find(all, one) != all.end();
}

}  // namespace

HostMemoryUse MemoryUseOf(const EngineOptions& engine, const Device& device, int64_t weight_bytes,
                          int64_t transfer_bytes) {
  HostMemoryUse use = {.host_tier = engine.host_bytes, .transfers = transfer_bytes};
  if (!device.is_host()) return use;
  use.weights = weight_bytes;
  use.kv_pool = engine.num_blocks * engine.layout.BlockBytes();
  return use;
}

// A line of /proc/self/cgroup is number:controllers:/folder. In a container the folder may be one
// of the host's that is not visible here: then the limits of the container are in the top folder.
int64_t HostMemoryLimit(const std::string& root) {
  int64_t limit = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const fs::path top = fs::path(root) / "sys/fs/cgroup";
  std::ifstream lines(fs::path(root) / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const fs::path folder = fs::path(fields[2]).relative_path();
    if (fields[1].empty()) {
      limit = LeastUpTo(top, (top / folder).lexically_normal(), "memory.max", limit);
    } else if (Has(fields[1], "memory")) {
      const fs::path memory = top / "memory";
      limit =
          LeastUpTo(memory, (memory / folder).lexically_normal(), "memory.limit_in_bytes", limit);
    }
  }
  return limit;
}

absl::Status CheckFits(const HostMemoryUse& use, int64_t limit) {
  if (use.sum() <= limit) return absl::OkStatus();
  return ResourceExhausted(
      "this worker would take {:.2f} GB of the host's memory, of which it may use {:.2f} GB: "
      "weights {:.2f}, KV pool {:.2f} (--kv-bytes or --kv-tokens), host tier {:.2f} "
      "(--host-kv-bytes), buffers of transfers {:.2f} (--kv-buffer-bytes): lower one of these",
      Gigabytes(use.sum()), Gigabytes(limit), Gigabytes(use.weights), Gigabytes(use.kv_pool),
      Gigabytes(use.host_tier), Gigabytes(use.transfers));
}

}  // namespace tandem
