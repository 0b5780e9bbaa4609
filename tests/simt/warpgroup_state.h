#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simt/machine.h"

namespace simt {

inline constexpr int kWarpgroupSize = 128;
inline constexpr int kProductRows = 64;
inline constexpr int kProductDepth = 16;

// A product that was started: what the instruction read from registers.
struct StartedProduct {
  detail::WarpgroupProduct product;
  std::array<std::array<uint32_t, 4>, kWarpgroupSize> a;
  int accumulator;  // index into WarpgroupState::accumulators
};

// Registers that products under way add to: the lanes find NaN in them until a wait.
struct Accumulator {
  std::array<float*, kWarpgroupSize> d;
  int n;
  int last_group;             // the newest group with a product into it
  std::vector<float> values;  // [64, n]
};

struct WarpgroupState {
  const detail::Collective* at = nullptr;
  int arrived = 0;
  std::array<void*, kWarpgroupSize> arguments{};

  bool fenced = false;
  int open_group = 0;                   // the group that the next commit closes
  std::vector<StartedProduct> started;  // not yet computed, oldest first
  std::vector<int> started_groups;
  std::vector<Accumulator> accumulators;

  void Reset();
};

}  // namespace simt
