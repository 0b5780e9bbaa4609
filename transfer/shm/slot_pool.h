#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/shm/slot.h"

namespace tandem {

// The shared memory of a medium, set aside at the start: one memfd per slot, so that a peer maps
// nothing but its own, all mapped side by side here.
//
// A slot is free, taken (a connection has it) or leaving: this side has closed the connection and
// the peer has not. A peer that hangs in the middle of a copy may write to its slot whenever it
// goes on, so no other gets that slot before the peer's end of the socket is closed: a process
// unmaps before it closes, and one that dies closes last.
// Thread: the loop's; memory() and the sizes are constant.
class SlotPool {
 public:
  // UNAVAILABLE when the system has not that much memory.
  static absl::StatusOr<std::unique_ptr<SlotPool>> Create(const SlotLayout& layout, size_t count);

  // A free slot, its control zeroed; none when all are taken or leaving.
  std::optional<size_t> Take();
  // `peer` is the socket of the connection that had it.
  void Leave(size_t slot, UniqueFd peer);

  const SlotLayout& layout() const { return layout_; }
  size_t size() const { return memfds_.size(); }
  const UniqueFd& memfd(size_t slot) const { return memfds_[slot]; }
  SlotParts parts(size_t slot) const;
  std::span<std::byte> memory() const { return mapping_.bytes(); }

 private:
  struct Leaving {
    size_t slot = 0;
    UniqueFd peer;
  };

  SlotPool(const SlotLayout& layout, Mapping mapping, std::vector<UniqueFd> memfds);
  std::span<std::byte> bytes(size_t slot) const;
  void FreeThoseThatLeft();

  const SlotLayout layout_;
  const Mapping mapping_;
  const std::vector<UniqueFd> memfds_;
  std::vector<size_t> free_;
  std::vector<Leaving> leaving_;
};

}  // namespace tandem
