#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "simt/machine.h"
#include "simt/vector_types.h"
#include "tests/simt/fiber.h"
#include "tests/simt/random.h"
#include "tests/simt/warpgroup_state.h"

// The running block: its lanes, where each of them waits, and its shared memory. One block runs at
// a time in the process (whoever runs it holds the machine's lock), so there is one of everything.
extern "C" uint3 simt_thread_idx;

namespace simt {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr int kMaxWarps = kMaxThreads / kWarpSize;

// A kernel to run: `thread` is the body with its arguments bound.
struct Grid {
  std::string name;
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  bool after_previous = false;
  std::function<void()> thread;
};

// Runs all blocks of the grid, in an order and with an interleaving that `random` chooses.
void RunGrid(const Grid& grid, Random& random);

enum class LaneState : uint8_t {
  kReady,
  kInWarp,       // at a collective of the warp
  kInWarpgroup,  // at a collective of the warpgroup
  kAtBarrier,
  kAtNamedBarrier,
  kAtMbarrier,
  kEnded,
};

// A lane's asynchronous copies, oldest first. Positions count from the start of the block.
struct CopyQueue {
  struct Copy {
    void* to;
    const void* from;
  };
  std::vector<Copy> copies;
  std::vector<size_t> group_ends;
  size_t landed = 0;

  void LandThrough(size_t end);
  void Clear();
};

struct Lane {
  Fiber fiber;
  int index = 0;  // in the block
  uint3 thread{};
  LaneState state = LaneState::kEnded;
  const detail::Collective* at = nullptr;
  void* arguments = nullptr;
  CopyQueue copies;
  bool waited_for_previous = false;

  int warp() const { return index / kWarpSize; }
  int in_warp() const { return index % kWarpSize; }
  uint32_t bit() const { return 1u << in_warp(); }
};

struct Warp {
  struct Join {
    const detail::Collective* collective;
    uint32_t mask;
    uint32_t arrived;
  };
  uint32_t alive = 0;
  uint32_t ready = 0;
  std::vector<Join> joins;
};

struct NamedBarrierState {
  int threads = 0;
  int arrived = 0;
  std::vector<Lane*> waiting;
};

// A barrier in shared memory; its eight bytes hold kMbarrierMark and the index of this.
struct MbarrierState {
  int count = 0;
  int pending = 0;
  uint32_t phase = 0;
  std::vector<Lane*> waiting;
};

struct Block {
  Lane lanes[kMaxThreads];
  Warp warps[kMaxWarps];
  WarpgroupState warpgroups[kMaxWarps / 4];
  int num_threads = 0;
  int alive = 0;
  int at_barrier = 0;
  uint32_t ready_warps = 0;
  NamedBarrierState named[16];
  std::deque<MbarrierState> mbarriers;
  const Grid* grid = nullptr;
  uint64_t launch = 0;
  // The warp whose turn it is: its lanes that have not run yet, from which end.
  int first_of_turn = 0;
  uint32_t turn = 0;
  bool backwards = false;
  Lane* running = nullptr;
  Random* random = nullptr;
  bool eager_products = false;

  void Wake(Lane& lane) {
    lane.state = LaneState::kReady;
    lane.at = nullptr;
    warps[lane.warp()].ready |= lane.bit();
    ready_warps |= 1u << lane.warp();
  }
  // The running lane waits until somebody wakes it; the next of the turn runs.
  void Wait(LaneState state) {
    Lane& lane = *running;
    lane.state = state;
    if (turn != 0) {
      Lane& next = lanes[first_of_turn + NextInTurn()];
      if (Fiber::CanSwitchTo(next.fiber)) {
        Run(next);
        lane.fiber.SwitchTo(next.fiber);
        return;
      }
    }
    lane.fiber.Suspend();
  }
  int NextInTurn() const {
    return backwards ? 31 - std::countl_zero(turn) : std::countr_zero(turn);
  }
  // `lane` is about to run; it leaves the turn.
  void Run(Lane& lane) {
    turn &= ~lane.bit();
    running = &lane;
    simt_thread_idx = lane.thread;
  }
};

extern Block& block;

}  // namespace simt
