#include "engine/pool_size.h"

#include <algorithm>

#include "base/status.h"

namespace tandem {
namespace {

constexpr int64_t kMaxBlocks = 1 << 24;  // limit of a KvStore

double Gigabytes(double bytes) { return bytes / 1e9; }

}  // namespace

absl::StatusOr<int32_t> BlocksThatFit(const KvLayout& layout, double fraction,
                                      int64_t reserved_bytes, const Device& device) {
  if (device.is_host()) return InvalidArgument("{}: give the KV pool a size", device.name());
  if (!(fraction > 0 && fraction <= 1)) {
    return InvalidArgument("the memory fraction is {}: it must be above 0 and at most 1", fraction);
  }
  ASSIGN_OR_RETURN(const DeviceMemory memory, device.Memory());
  const double total = static_cast<double>(memory.total_bytes);
  const auto own = static_cast<double>(memory.own_bytes);
  const auto reserved = static_cast<double>(reserved_bytes);
  const double left = fraction * total - own - reserved;
  const auto blocks = static_cast<int64_t>(left / static_cast<double>(layout.BlockBytes()));
  if (blocks < 1) {
    return ResourceExhausted(
        "{}: weights and activations take {:.2f} GB and buffers of transfers {:.2f} GB, which "
        "leaves "
        "nothing for KV of the {:.2f} GB that this worker may use ({:.2f} of {:.2f} GB): raise "
        "--device-memory-fraction, or lower --max-step-tokens or --max-context",
        device.name(), Gigabytes(own), Gigabytes(reserved), Gigabytes(fraction * total), fraction,
        Gigabytes(total));
  }
  if (left + reserved > static_cast<double>(memory.free_bytes)) {
    return ResourceExhausted(
        "{}: {:.2f} of its {:.2f} GB leave {:.2f} GB for KV and transfers, but {:.2f} GB are free: "
        "end what else "
        "runs on it, or lower --device-memory-fraction",
        device.name(), fraction, Gigabytes(total), Gigabytes(left + reserved),
        Gigabytes(static_cast<double>(memory.free_bytes)));
  }
  return static_cast<int32_t>(std::min(blocks, kMaxBlocks));
}

}  // namespace tandem
