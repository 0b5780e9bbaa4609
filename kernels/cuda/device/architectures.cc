#include "kernels/cuda/device/architectures.h"

#include <charconv>

namespace tandem::cuda {
namespace {

// The compute capability from which on a kernel may start before the previous one has ended, and
// waits for it inside: code compiled for less does not have that wait (ptx::GridDependencyWait).
constexpr int kFirstWithOverlap = 90;

bool Runs(std::string_view architecture, int compute_capability) {
  int number = 0;
  const char* const end = architecture.data() + architecture.size();
  const char* const rest = std::from_chars(architecture.data(), end, number).ptr;
  std::string_view kind(rest, static_cast<size_t>(end - rest));
  if (!kind.empty() && (kind.front() == 'a' || kind.front() == 'f')) {
    return number == compute_capability;
  }
  const bool machine_code = kind != "-virtual" && number / 10 == compute_capability / 10;
  const bool overlaps = compute_capability >= kFirstWithOverlap;
  const bool ptx = kind != "-real" && (!overlaps || number >= kFirstWithOverlap);
  return (machine_code || ptx) && number <= compute_capability;
}

}  // namespace

bool HasCodeFor(std::string_view architectures, int compute_capability) {
  while (!architectures.empty()) {
    const size_t end = architectures.find(',');
    if (Runs(architectures.substr(0, end), compute_capability)) return true;
    architectures.remove_prefix(end == std::string_view::npos ? architectures.size() : end + 1);
  }
  return false;
}

}  // namespace tandem::cuda
