#include "tests/simt/block.h"

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "tests/simt/shared_memory.h"

extern "C" {
uint3 simt_thread_idx;
uint3 simt_block_idx;
dim3 simt_block_dim;
dim3 simt_grid_dim;
}

namespace simt {

// Never destroyed: its fibers stand in the middle of their bodies.
Block& block = *new Block;

namespace {

void RunLane(void* context) {
  Lane& lane = *static_cast<Lane*>(context);
  for (;;) {
    block.grid->thread();
    lane.state = LaneState::kEnded;
    lane.fiber.Suspend();
  }
}

uint3 Unflatten(uint64_t index, const dim3& shape) {
  return {static_cast<unsigned>(index % shape.x), static_cast<unsigned>(index / shape.x % shape.y),
          static_cast<unsigned>(index / shape.x / shape.y)};
}

void ReleaseBarrierWhenComplete() {
  if (block.at_barrier == 0 || block.at_barrier < block.alive) return;
  block.at_barrier = 0;
  for (int i = 0; i < block.num_threads; ++i) {
    Lane& lane = block.lanes[i];
    if (lane.state == LaneState::kAtBarrier) block.Wake(lane);
  }
}

void EndLane(Lane& lane) {
  if (block.grid->after_previous && !lane.waited_for_previous) {
    detail::Fail("launched after_previous, it has ended without GridDependencyWait");
  }
  Warp& warp = block.warps[lane.warp()];
  warp.alive &= ~lane.bit();
  --block.alive;
  for (const Warp::Join& join : warp.joins) {
    if ((join.mask & lane.bit()) != 0) {
      detail::Fail("it has ended, but lanes %08x wait for it in %s", join.arrived,
                   join.collective->name);
    }
  }
  ReleaseBarrierWhenComplete();
}

void RunWarp(int index) {
  Warp& warp = block.warps[index];
  block.turn = warp.ready;
  block.first_of_turn = index * kWarpSize;
  block.backwards = (block.random->Next() & 1) != 0;
  warp.ready = 0;
  block.ready_warps &= ~(1u << index);
  while (block.turn != 0) {
    Lane& lane = block.lanes[block.first_of_turn + block.NextInTurn()];
    block.Run(lane);
    lane.fiber.Resume();
    // Lanes hand over to one another: this is the last of those that ran.
    if (block.running->state == LaneState::kEnded) EndLane(*block.running);
  }
}

const char* Name(LaneState state) {
  switch (state) {
    case LaneState::kReady:
      return "ready";
    case LaneState::kInWarp:
      return "in a warp collective";
    case LaneState::kInWarpgroup:
      return "in a warpgroup collective";
    case LaneState::kAtBarrier:
      return "at __syncthreads";
    case LaneState::kAtNamedBarrier:
      return "at a named barrier";
    case LaneState::kAtMbarrier:
      return "at an mbarrier";
    case LaneState::kEnded:
      return "ended";
  }
  return "?";
}

[[noreturn]] void Deadlock() {
  std::string where;
  for (int w = 0; w * kWarpSize < block.num_threads; ++w) {
    int start = 0;
    for (int i = 1; i <= kWarpSize; ++i) {
      const Lane& first = block.lanes[w * kWarpSize + start];
      const Lane& lane = block.lanes[w * kWarpSize + i % kWarpSize];
      if (i < kWarpSize && lane.state == first.state && lane.at == first.at) continue;
      char line[160];
      std::snprintf(line, sizeof(line), "\n  warp %d, lanes %d to %d: %s %s", w, start, i - 1,
                    Name(first.state), first.at != nullptr ? first.at->name : "");
      where += line;
      start = i;
    }
  }
  block.running = nullptr;
  detail::Fail("deadlock: nobody can go on%s", where.c_str());
}

void StartBlock(uint64_t index) {
  const Grid& grid = *block.grid;
  simt_block_idx = Unflatten(index, grid.grid);
  block.alive = block.num_threads;
  block.at_barrier = 0;
  block.ready_warps = 0;
  block.mbarriers.clear();
  block.eager_products = block.random->OneIn(2);
  for (NamedBarrierState& barrier : block.named) barrier = {};
  for (WarpgroupState& group : block.warpgroups) group.Reset();
  FillShared(grid.shared_bytes);
  for (int i = 0; i < block.num_threads; ++i) {
    Lane& lane = block.lanes[i];
    lane.at = nullptr;
    lane.waited_for_previous = false;
    lane.copies.Clear();
    block.Wake(lane);
  }
  for (int w = 0; w * kWarpSize < block.num_threads; ++w) {
    block.warps[w].alive = block.warps[w].ready;
    block.warps[w].joins.clear();
  }
}

void RunBlock(uint64_t index) {
  StartBlock(index);
  // How soon one warp gives way to another: never before it must, sometimes, always.
  constexpr uint32_t kTurns[] = {1u << 31, 8, 1};
  const uint32_t turns = kTurns[block.random->Below(3)];
  int warp = 0;
  while (block.alive > 0) {
    if (block.ready_warps == 0) Deadlock();
    if ((block.ready_warps >> warp & 1) == 0 || block.random->OneIn(turns)) {
      warp = block.random->Bit(block.ready_warps);
    }
    RunWarp(warp);
  }
  for (int i = 0; i < block.num_threads; ++i) {
    block.running = &block.lanes[i];
    if (!block.lanes[i].fiber.StackIntact()) detail::Fail("its stack has overflowed");
  }
  block.running = nullptr;
  CheckSharedGuard(block.grid->shared_bytes);
}

}  // namespace

void RunGrid(const Grid& grid, Random& random) {
  block.grid = &grid;
  block.random = &random;
  ++block.launch;
  simt_grid_dim = grid.grid;
  simt_block_dim = grid.block;
  block.num_threads = static_cast<int>(grid.block.x * grid.block.y * grid.block.z);
  for (int i = 0; i < block.num_threads; ++i) {
    Lane& lane = block.lanes[i];
    lane.index = i;
    lane.thread = Unflatten(static_cast<uint64_t>(i), grid.block);
    if (!lane.fiber.started()) lane.fiber.Start(i, RunLane, &lane);
  }
  std::vector<uint32_t> order(size_t{grid.grid.x} * grid.grid.y * grid.grid.z);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = static_cast<uint32_t>(order.size()); i > 1; --i) {
    std::swap(order[i - 1], order[random.Below(i)]);
  }
  for (uint32_t index : order) RunBlock(index);
  block.grid = nullptr;
}

namespace detail {

void Fail(const char* format, ...) {
  std::fflush(stdout);
  std::fprintf(stderr, "simt: ");
  if (block.grid != nullptr) {
    std::fprintf(stderr, "launch %llu, %s, block (%u, %u, %u)",
                 static_cast<unsigned long long>(block.launch), block.grid->name.c_str(),
                 simt_block_idx.x, simt_block_idx.y, simt_block_idx.z);
    if (block.running != nullptr) {
      std::fprintf(stderr, ", warp %d, lane %d", block.running->warp(), block.running->in_warp());
    }
    std::fprintf(stderr, ": ");
  }
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "\n");
  std::abort();
}

void JoinWarp(const Collective& collective, uint32_t mask, void* arguments) {
  Lane& lane = *block.running;
  Warp& warp = block.warps[lane.warp()];
  if ((mask & lane.bit()) == 0) {
    Fail("%s with mask %08x, which does not name the caller", collective.name, mask);
  }
  if ((mask & ~warp.alive) != 0) {
    Fail("%s with mask %08x: lanes %08x are absent or have ended", collective.name, mask,
         mask & ~warp.alive);
  }
  auto join = std::find_if(warp.joins.begin(), warp.joins.end(),
                           [&](const Warp::Join& other) { return (other.mask & mask) != 0; });
  if (join == warp.joins.end()) {
    join = warp.joins.insert(join, {&collective, mask, 0});
  } else if (join->mask != mask || join->collective != &collective) {
    Fail("divergence: %s with mask %08x, while lanes %08x wait in %s with mask %08x",
         collective.name, mask, join->arrived, join->collective->name, join->mask);
  }
  lane.arguments = arguments;
  join->arrived |= lane.bit();
  if (join->arrived != mask) {
    lane.at = &collective;
    block.Wait(LaneState::kInWarp);
    return;
  }
  warp.joins.erase(join);
  void* all[kWarpSize] = {};
  Lane* lanes = &block.lanes[lane.warp() * kWarpSize];
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    all[i] = lanes[i].arguments;
    if (i != lane.in_warp()) block.Wake(lanes[i]);
  }
  collective.run(all);
}

void JoinWarpgroup(const Collective& collective, void* arguments) {
  Lane& lane = *block.running;
  const int first = lane.index / kWarpgroupSize * kWarpgroupSize;
  WarpgroupState& group = block.warpgroups[lane.index / kWarpgroupSize];
  if (first + kWarpgroupSize > block.num_threads) {
    Fail("%s in a warpgroup of %d threads", collective.name, block.num_threads - first);
  }
  if (group.arrived > 0 && group.at != &collective) {
    Fail("divergence: %s, while %d threads of the warpgroup wait in %s", collective.name,
         group.arrived, group.at->name);
  }
  group.at = &collective;
  group.arguments[lane.index - first] = arguments;
  if (++group.arrived < kWarpgroupSize) {
    lane.at = &collective;
    block.Wait(LaneState::kInWarpgroup);
    return;
  }
  group.arrived = 0;
  for (int i = first; i < first + kWarpgroupSize; ++i) {
    if (i != lane.index) block.Wake(block.lanes[i]);
  }
  collective.run(group.arguments.data());
}

void SyncThreads() {
  ++block.at_barrier;
  if (block.at_barrier == block.alive) {
    ReleaseBarrierWhenComplete();
    return;
  }
  block.Wait(LaneState::kAtBarrier);
}

int LaneOfWarp() { return block.running->in_warp(); }
void GridDependencyWaited() { block.running->waited_for_previous = true; }

}  // namespace detail
}  // namespace simt
