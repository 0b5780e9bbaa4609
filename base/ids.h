#pragma once

#include <compare>
#include <cstdint>
#include <utility>

#include "fmt/format.h"

namespace tandem {

// An integer that names one kind of thing and converts to no other.
template <typename Tag, typename Rep>
class StrongId {
 public:
  using rep = Rep;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  template <typename H>
  friend H AbslHashValue(H state, StrongId id) {
    return H::combine(std::move(state), id.value_);
  }

 private:
  Rep value_{};
};

// A client's request at the router, and the same request at every worker that serves a part of it.
using RequestId = StrongId<struct RequestIdTag, uint64_t>;
// One sequence of tokens inside one engine.
using SequenceId = StrongId<struct SequenceIdTag, uint64_t>;
// Blocks that a decode worker has set aside for KV that another worker will push.
using ReservationId = StrongId<struct ReservationIdTag, uint64_t>;
// A block of the pool: an index in [0, num_blocks).
using BlockId = StrongId<struct BlockIdTag, int32_t>;

}  // namespace tandem

template <typename Tag, typename Rep>
struct fmt::formatter<tandem::StrongId<Tag, Rep>> : fmt::formatter<Rep> {
  template <typename Context>
  auto format(tandem::StrongId<Tag, Rep> id, Context& context) const {
    return fmt::formatter<Rep>::format(id.value(), context);
  }
};
