// Named barriers, barriers in shared memory, and asynchronous copies.
#include <cstring>
#include <iterator>

#include "tests/simt/block.h"

namespace simt {
namespace {

constexpr uint64_t kMbarrierMark = 0x6d626172ull << 32;

MbarrierState& Find(const uint64_t* bar, const char* caller) {
  const uint64_t value = *bar;
  const uint64_t index = value & 0xffffffffu;
  if ((value & ~0xffffffffull) != kMbarrierMark || index >= block.mbarriers.size()) {
    detail::Fail("%s: there is no mbarrier at %p", caller, static_cast<const void*>(bar));
  }
  return block.mbarriers[index];
}

void Arrive(MbarrierState& barrier) {
  if (--barrier.pending > 0) return;
  barrier.phase ^= 1;
  barrier.pending = barrier.count;
  for (Lane* lane : barrier.waiting) block.Wake(*lane);
  barrier.waiting.clear();
}

struct NamedCall {
  int id;
  int threads;
  bool wait;
};

void RunNamedBarrier(void* const* arguments) {
  const NamedCall& first = *static_cast<NamedCall*>(arguments[0]);
  for (int i = 1; i < kWarpSize; ++i) {
    const NamedCall& other = *static_cast<NamedCall*>(arguments[i]);
    if (other.id != first.id || other.threads != first.threads || other.wait != first.wait) {
      detail::Fail("the lanes of the warp disagree about a named barrier: %d of %d and %d of %d",
                   first.id, first.threads, other.id, other.threads);
    }
  }
}

const detail::Collective kNamedBarrier{"a named barrier", RunNamedBarrier};

}  // namespace

void CopyQueue::LandThrough(size_t end) {
  for (; landed < end; ++landed) {
    const Copy& copy = copies[landed];
    if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, 16);
    } else {
      std::memset(copy.to, 0, 16);
    }
  }
}

void CopyQueue::Clear() {
  copies.clear();
  group_ends.clear();
  landed = 0;
}

namespace detail {

void CopyAsync(void* to, const void* from) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 != 0) {
    Fail("cp.async from %p to %p: both must be aligned to 16 bytes", from, to);
  }
  std::memset(to, 0xff, 16);
  block.running->copies.copies.push_back({to, from});
}

void CopyCommit() {
  CopyQueue& queue = block.running->copies;
  queue.group_ends.push_back(queue.copies.size());
}

void CopyWait(int pending) {
  CopyQueue& queue = block.running->copies;
  const int due = static_cast<int>(queue.group_ends.size()) - pending;
  if (due <= 0) return;
  queue.LandThrough(queue.group_ends[due - 1]);
  queue.group_ends.erase(queue.group_ends.begin(), queue.group_ends.begin() + due);
}

void NamedBarrier(int id, int threads, bool wait) {
  if (id < 1 || id > 15 || threads % kWarpSize != 0 || threads < kWarpSize ||
      threads > block.num_threads) {
    Fail("named barrier %d of %d threads, in a block of %d", id, threads, block.num_threads);
  }
  NamedCall call{id, threads, wait};
  JoinWarp(kNamedBarrier, 0xffffffffu, &call);
  NamedBarrierState& barrier = block.named[id];
  if (barrier.arrived == 0) barrier.threads = threads;
  if (barrier.threads != threads) {
    Fail("named barrier %d of %d threads, which others use with %d", id, threads, barrier.threads);
  }
  if (++barrier.arrived < threads) {
    if (!wait) return;
    barrier.waiting.push_back(block.running);
    block.Wait(LaneState::kAtNamedBarrier);
    return;
  }
  barrier.arrived = 0;
  for (Lane* lane : barrier.waiting) block.Wake(*lane);
  barrier.waiting.clear();
}

void MbarrierInit(uint64_t* bar, int arrivals) {
  if (arrivals < 1 || reinterpret_cast<uintptr_t>(bar) % 8 != 0) {
    Fail("mbarrier.init of %p for %d arrivals", static_cast<void*>(bar), arrivals);
  }
  *bar = kMbarrierMark | block.mbarriers.size();
  block.mbarriers.emplace_back();
  block.mbarriers.back().count = arrivals;
  block.mbarriers.back().pending = arrivals;
}

void MbarrierArrive(uint64_t* bar) { Arrive(Find(bar, "mbarrier.arrive")); }

void MbarrierWait(uint64_t* bar, uint32_t parity) {
  MbarrierState& barrier = Find(bar, "mbarrier.try_wait");
  while (barrier.phase == (parity & 1)) {
    barrier.waiting.push_back(block.running);
    block.Wait(LaneState::kAtMbarrier);
  }
}

}  // namespace detail
}  // namespace simt
