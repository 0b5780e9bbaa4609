#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/media/shm/slot.h"

namespace tandem {

// The shared memory of a medium, set aside at the start. Each slot is a memfd of its own, so that a
// peer maps its slot and nothing else; this process maps all slots side by side.
//
// A slot is free, taken by a connection, or draining: this side has closed the connection and the
// peer has not. A peer that was stopped in the middle of a copy may write to its slot when it is
// continued. The slot is therefore not given to another peer before this peer's end of the socket
// is closed: a process unmaps the slot before it closes, and one that dies closes last.
// Thread: the loop's; memory() and the sizes are constant.
class SlotPool {
 public:
  // UNAVAILABLE when the system does not have that much memory.
  static absl::StatusOr<std::unique_ptr<SlotPool>> Create(const SlotLayout& layout, size_t count);

  // A free slot with zeroed control; empty when all are taken or draining.
  std::optional<size_t> Take();
  // Lets the slot drain. `peer` is the socket of the connection that had it.
  void Drain(size_t slot, UniqueFd peer);

  const SlotLayout& layout() const { return layout_; }
  size_t size() const { return memfds_.size(); }
  const UniqueFd& memfd(size_t slot) const { return memfds_[slot]; }
  SlotParts parts(size_t slot) const;
  std::span<std::byte> memory() const { return mapping_.bytes(); }

 private:
  struct DrainingSlot {
    size_t slot = 0;
    UniqueFd peer;
  };

  SlotPool(const SlotLayout& layout, Mapping mapping, std::vector<UniqueFd> memfds);
  std::span<std::byte> bytes(size_t slot) const;
  void FreeDrained();

  const SlotLayout layout_;
  const Mapping mapping_;
  const std::vector<UniqueFd> memfds_;
  std::vector<size_t> free_;
  std::vector<DrainingSlot> draining_;
};

}  // namespace tandem
