#include "transfer/media/shm/area.h"

#include "base/check.h"

namespace tandem {

Area::Piece Area::Free(size_t bytes) const {
  if (taken_.empty()) return {.begin = 0, .end = memory_.size()};
  const size_t oldest = taken_.front().begin;
  const size_t latest = taken_.back().end;
  if (latest <= oldest) return {.begin = latest, .end = oldest};
  if (memory_.size() - latest >= bytes) return {.begin = latest, .end = memory_.size()};
  return {.begin = 0, .end = oldest};
}

size_t Area::Room() const {
  const size_t room = Free(piece_bytes_).size();
  return room >= piece_bytes_ ? room : 0;
}

uint64_t Area::Take(size_t bytes) {
  const Piece free = Free(bytes);
  TANDEM_CHECK(bytes > 0 && bytes <= free.size(), "taken without room");
  taken_.push_back({.begin = free.begin, .end = free.begin + bytes});
  taken_bytes_ += bytes;
  return free.begin;
}

void Area::KeepLatest(uint64_t bytes) {
  while (!taken_.empty() && taken_bytes_ - taken_.front().size() >= bytes) {
    taken_bytes_ -= taken_.front().size();
    taken_.pop_front();
  }
}

}  // namespace tandem
