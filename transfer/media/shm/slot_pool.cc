#include "transfer/media/shm/slot_pool.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// Whether the peer has closed the socket. Discards anything that it still sends.
bool HasHungUp(const UniqueFd& socket) {
  std::array<std::byte, 64> ignored;
  const ssize_t count = recv(socket.get(), ignored.data(), ignored.size(), MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlotPool>> SlotPool::Create(const SlotLayout& layout, size_t count) {
  ASSIGN_OR_RETURN(Mapping mapping, ReserveAddresses(layout.slot_bytes() * count));
  std::vector<UniqueFd> memfds;
  for (size_t slot = 0; slot < count; ++slot) {
    ASSIGN_OR_RETURN(UniqueFd memory, NewSharedMemory(layout.slot_bytes()));
    const auto place = mapping.bytes().subspan(slot * layout.slot_bytes(), layout.slot_bytes());
    RETURN_IF_ERROR(MapOver(memory, place));
    memfds.push_back(std::move(memory));
  }
  return std::unique_ptr<SlotPool>(new SlotPool(layout, std::move(mapping), std::move(memfds)));
}

SlotPool::SlotPool(const SlotLayout& layout, Mapping mapping, std::vector<UniqueFd> memfds)
    : layout_(layout), mapping_(std::move(mapping)), memfds_(std::move(memfds)) {
  for (size_t slot = size(); slot > 0; --slot) free_.push_back(slot - 1);
}

std::span<std::byte> SlotPool::bytes(size_t slot) const {
  return memory().subspan(slot * layout_.slot_bytes(), layout_.slot_bytes());
}

SlotParts SlotPool::parts(size_t slot) const { return PartsOf(layout_, bytes(slot)); }

std::optional<size_t> SlotPool::Take() {
  FreeDrained();
  if (free_.empty()) return std::nullopt;
  const size_t slot = free_.back();
  free_.pop_back();
  std::memset(bytes(slot).data() + layout_.control_offset(), 0, SlotLayout::kControlBytes);
  return slot;
}

void SlotPool::Drain(size_t slot, UniqueFd peer) {
  shutdown(peer.get(), SHUT_WR);  // the peer sees the end and closes in turn
  draining_.push_back({.slot = slot, .peer = std::move(peer)});
}

void SlotPool::FreeDrained() {
  std::erase_if(draining_, [&](const DrainingSlot& draining) {
    const bool left = HasHungUp(draining.peer);
    if (left) free_.push_back(draining.slot);
    return left;
  });
}

}  // namespace tandem
