// Kernel launches, and stream capture into graphs.
#include <algorithm>
#include <utility>

#include "tests/simt/block.h"
#include "tests/simt/runtime.h"
#include "tests/simt/shared_memory.h"

namespace simt {
namespace {

// Without asking: of 48 KiB, what a kernel has statically counts, too, which nothing here knows.
constexpr int kDefaultSharedBytes = 46 << 10;

// All nodes, each after those it follows, otherwise in any order.
void RunNodes(const GraphNodes& nodes, Random& random) {
  constexpr size_t kChoices = 8;
  std::vector<bool> done(nodes.size());
  size_t first = 0;  // those before it are done
  for (size_t count = 0; count < nodes.size(); ++count) {
    while (done[first]) ++first;
    std::vector<size_t> ready;
    for (size_t i = first; i < std::min(nodes.size(), first + 4 * kChoices); ++i) {
      const bool due = !done[i] && std::all_of(nodes[i].after.begin(), nodes[i].after.end(),
                                               [&](int before) { return done[before]; });
      if (due) ready.push_back(i);
    }
    const size_t next = ready[random.Below(static_cast<uint32_t>(ready.size()))];
    nodes[next].run();
    done[next] = true;
  }
}

// The nodes that `from` follow, itself included.
std::vector<bool> Ancestors(const GraphNodes& nodes, std::vector<int> from) {
  std::vector<bool> seen(nodes.size());
  while (!from.empty()) {
    const int node = from.back();
    from.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    from.insert(from.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return seen;
}

// Ends a capture: its streams are as before. False when work on another stream was not joined.
bool Close(Machine& machine, const std::shared_ptr<Capture>& capture) {
  const std::vector<bool> joined = Ancestors(capture->nodes, capture->origin->captured_after);
  bool all_joined = true;
  for (cudaStream_t stream : machine.streams) {
    if (stream->capture != capture) continue;
    for (int node : stream->captured_after) all_joined = all_joined && joined[node];
    stream->capture = nullptr;
    stream->captured_after.clear();
  }
  std::erase(machine.captures, capture);
  return all_joined;
}

cudaError_t CheckLaunch(const Machine& machine, const cudaLaunchConfig_t& config,
                        const void* kernel) {
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads < 1 || threads > kMaxThreads || block.z > 64) return cudaErrorInvalidConfiguration;
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  const auto asked = machine.dynamic_shared_bytes.find(kernel);
  const int allowed =
      asked == machine.dynamic_shared_bytes.end() ? kDefaultSharedBytes : asked->second;
  if (config.dynamicSmemBytes > static_cast<size_t>(allowed)) return cudaErrorInvalidValue;
  const int capability = machine.config.compute_capability;
  const bool has_image = capability / 10 == 8 || capability == 90;
  return has_image ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

}  // namespace

cudaError_t Machine::Spoil(Capture& capture, cudaError_t error) {
  capture.invalidated = true;
  return error;
}

cudaError_t Machine::AllowSynchronous() {
  const std::thread::id self = std::this_thread::get_id();
  for (const auto& capture : captures) {
    const bool forbids = capture->mode == cudaStreamCaptureModeGlobal ||
                         (capture->owner == self && capture->mode != cudaStreamCaptureModeRelaxed);
    if (forbids) return Spoil(*capture, cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
}

namespace detail {

cudaError_t QueueKernel(const cudaLaunchConfig_t& config, const void* kernel, const char* name,
                        std::function<void()> thread) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (!machine.Known(config.stream)) return Report(cudaErrorInvalidResourceHandle);
  const cudaError_t error = CheckLaunch(machine, config, kernel);
  if (error != cudaSuccess) return Report(error);
  auto grid = std::make_shared<Grid>();
  grid->name = name;
  grid->grid = config.gridDim;
  grid->block = config.blockDim;
  grid->shared_bytes = config.dynamicSmemBytes;
  grid->thread = std::move(thread);
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      grid->after_previous = config.attrs[i].val.programmaticStreamSerializationAllowed != 0;
    }
  }
  ++machine.counters.launches;
  machine.counters.thread_blocks += int64_t{config.gridDim.x} * config.gridDim.y * config.gridDim.z;
  return Report(machine.Queue(config.stream, [grid, &machine] {
    ++machine.counters.kernels_run;
    RunGrid(*grid, machine.random);
  }));
}

}  // namespace detail
}  // namespace simt

using simt::Capture;
using simt::Machine;
using simt::Report;
using simt::TheMachine;

// Work of a library on a stream (fake_cublaslt.cc): `run` is called whenever the stream comes to
// it, again at each replay of a graph; `drop` once, when nothing can call it any more.
extern "C" int simt_queue(cudaStream_t stream, void (*run)(void*), void (*drop)(void*),
                          void* state) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  const std::shared_ptr<void> owned(state, drop);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return error;
  if (!machine.Known(stream)) return cudaErrorInvalidResourceHandle;
  return machine.Queue(stream, [run, owned] { run(owned.get()); });
}

// The same of work that waits for another process or thread (fake_nccl.cc): `poll` is called, soon
// and again, until it gives other than 0. It must not wait itself, nor call the runtime.
extern "C" int simt_queue_polled(cudaStream_t stream, int (*poll)(void*), void (*drop)(void*),
                                 void* state) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  const std::shared_ptr<void> owned(state, drop);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return error;
  if (!machine.Known(stream)) return cudaErrorInvalidResourceHandle;
  return machine.QueuePolled(stream, [poll, owned] { return poll(owned.get()) != 0; });
}

// The library was asked how to compute something (fake_cublaslt.cc).
extern "C" void simt_note_heuristic() {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  ++machine.counters.heuristics;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > simt::kMaxSharedBytes) {
    return Report(cudaErrorInvalidValue);
  }
  machine.dynamic_shared_bytes[function] = value;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (!machine.Known(stream)) return Report(cudaErrorInvalidResourceHandle);
  if (stream == nullptr) return Report(cudaErrorStreamCaptureUnsupported);
  if (stream->capture != nullptr) return Report(cudaErrorIllegalState);
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->mode = mode;
  stream->capture->owner = std::this_thread::get_id();
  stream->captured_after.clear();
  machine.captures.push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  *graph = nullptr;
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (stream == nullptr || !machine.Known(stream)) return Report(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return Report(cudaErrorIllegalState);
  if (capture->origin != stream) {
    return Report(machine.Spoil(*capture, cudaErrorStreamCaptureUnmatched));
  }
  const bool all_joined = simt::Close(machine, capture);
  if (capture->invalidated) return Report(cudaErrorStreamCaptureInvalidated);
  if (!all_joined) return Report(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{std::move(capture->nodes)};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (!machine.Known(stream)) return Report(cudaErrorInvalidResourceHandle);
  *status = cudaStreamCaptureStatusNone;
  if (stream != nullptr && stream->capture != nullptr) {
    *status = stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
  }
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.AllowSynchronous(); error != cudaSuccess) {
    return Report(error);
  }
  ++machine.counters.graphs_made;
  *exec = new CUgraphExec_st{std::make_shared<simt::GraphNodes>(graph->nodes)};
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (!machine.Known(stream)) return Report(cudaErrorInvalidResourceHandle);
  ++machine.counters.graph_launches;
  return Report(machine.Queue(
      stream, [nodes = exec->nodes, &machine] { simt::RunNodes(*nodes, machine.random); }));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
