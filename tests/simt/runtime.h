#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/simt/device_arena.h"
#include "tests/simt/random.h"
#include "tests/simt/simt.h"

// The host's side of the machine: memory, streams, events, graphs. Queued work runs when something
// is waited for, or when a coin says so; between streams only events order it.
namespace simt {

struct Capture;

struct EventState {
  bool timed = true;
  uint64_t recorded = 0;  // records so far, and the newest that has been reached
  uint64_t reached = 0;
  std::chrono::steady_clock::time_point time;
  // Where in a capture it was recorded, when that was the last record.
  std::weak_ptr<Capture> capture;
  std::vector<int> captured_after;
};

// An item of a stream: something to do; or (with `event`) a record of the event to wait for; or
// (with `poll`) a kernel that waits for somebody outside of the machine, called until it is done.
struct Work {
  std::function<void()> run;
  std::shared_ptr<EventState> event;
  uint64_t record = 0;
  std::function<bool()> poll;

  bool ready() const { return event == nullptr || event->reached >= record; }
};

struct GraphNode {
  std::function<void()> run;
  std::vector<int> after;
};
using GraphNodes = std::vector<GraphNode>;

struct Capture {
  cudaStream_t origin;
  cudaStreamCaptureMode mode;
  std::thread::id owner;
  bool invalidated = false;
  GraphNodes nodes;
};

}  // namespace simt

struct CUstream_st {
  bool blocking = true;  // waits for the null stream, and that for it
  int priority = 0;      // the lower, the sooner its kernels start on a real device
  std::deque<simt::Work> queue;
  std::shared_ptr<simt::Capture> capture;
  std::vector<int> captured_after;  // the nodes that the next one follows
};
struct CUevent_st {
  std::shared_ptr<simt::EventState> state = std::make_shared<simt::EventState>();
};
struct CUgraph_st {
  simt::GraphNodes nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const simt::GraphNodes> nodes;
};

namespace simt {

enum class MemoryKind { kPageable, kPinned, kDevice };

struct Allocation {
  size_t bytes;
  MemoryKind kind;
  bool owned;  // by the machine; registered memory is the caller's
};

struct Machine {
  std::mutex mutex;
  Random random;
  DeviceConfig config;
  Counters counters;
  std::map<uintptr_t, Allocation> allocations;
  size_t device_bytes = 0;
  DeviceArena arena;
  std::vector<cudaStream_t> streams;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<const void*, int> dynamic_shared_bytes;  // what kernels asked for

  // What the driver answers to everything while it cannot be used.
  cudaError_t Usable() const;

  // ---- memory ----
  // Where `pointer` is, and how many bytes of that allocation follow it (all for pageable memory).
  MemoryKind Classify(const void* pointer, size_t* bytes) const;

  // ---- streams ----
  // Queues on the stream, or records when that is being captured. Runs some work, perhaps.
  cudaError_t Queue(cudaStream_t stream, std::function<void()> run);
  // Queues what is done once `poll` says so; other streams run meanwhile. Not while a capture or on
  // the null stream.
  cudaError_t QueuePolled(cudaStream_t stream, std::function<bool()> poll);
  bool Known(cudaStream_t stream) const;
  // One item of one stream that can run; false when there is none.
  bool StepAny();
  void StepPerhaps();
  void DrainStream(cudaStream_t stream);
  void DrainAll();
  void ReachEvent(const EventState& event, uint64_t record);
  // Whether a stream's next item is one that somebody outside of the machine has to end.
  bool WaitsForOthers() const;

  // ---- captures ----
  // cudaErrorStreamCaptureUnsupported, and the capture is spoilt, when one forbids this thread's
  // synchronous calls.
  cudaError_t AllowSynchronous();
  cudaError_t Spoil(Capture& capture, cudaError_t error);
};

Machine& TheMachine();

// The error as the runtime returns it: remembered for cudaGetLastError.
cudaError_t Report(cudaError_t error);

}  // namespace simt
