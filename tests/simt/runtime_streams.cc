// Streams and events: what is queued, and when it runs.
#include <algorithm>

#include "tests/simt/block.h"
#include "tests/simt/runtime.h"

namespace simt {
namespace {

constexpr uint32_t kWorkAtOnce = 4;  // one call in so many runs a piece of work right away

// False when it is not done yet.
bool RunFront(Machine& machine, CUstream_st& stream) {
  const DeviceArena::Access access(machine.arena);
  if (stream.queue.front().poll) {
    if (!stream.queue.front().poll()) return false;
    stream.queue.pop_front();
    return true;
  }
  const Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (work.run) work.run();
  return true;
}

bool CanRun(const CUstream_st& stream) {
  return !stream.queue.empty() && stream.queue.front().ready();
}

// Until `done`, or (false) until nothing can go on by itself: the stream's own work first, others
// only where it waits for them; or, `eager`, any stream's.
template <class Done>
bool RunUntil(Machine& machine, cudaStream_t stream, bool eager, Done done) {
  const DeviceArena::Access access(machine.arena);
  while (!done()) {
    const bool own_ran =
        !eager && stream != nullptr && CanRun(*stream) && RunFront(machine, *stream);
    if (!own_ran && !machine.StepAny()) return false;
  }
  return true;
}

// While a kernel waits for somebody else, others may use the machine. Callers hold its lock.
template <class Done>
void Drain(Machine& machine, cudaStream_t stream, Done done) {
  if (done()) return;
  const bool eager = machine.random.OneIn(2);
  while (!RunUntil(machine, stream, eager, done)) {
    if (!machine.WaitsForOthers()) {
      detail::Fail("streams wait for one another: none can go on");
    }
    machine.mutex.unlock();
    std::this_thread::yield();
    machine.mutex.lock();
  }
}

}  // namespace

bool Machine::Known(cudaStream_t stream) const {
  return stream == nullptr || std::find(streams.begin(), streams.end(), stream) != streams.end();
}

bool Machine::StepAny() {
  if (streams.empty()) return false;
  const size_t first = random.Below(static_cast<uint32_t>(streams.size()));
  for (size_t i = 0; i < streams.size(); ++i) {
    CUstream_st& stream = *streams[(first + i) % streams.size()];
    if (CanRun(stream) && RunFront(*this, stream)) return true;
  }
  return false;
}

bool Machine::WaitsForOthers() const {
  return std::ranges::any_of(streams, [](cudaStream_t stream) {
    return !stream->queue.empty() && stream->queue.front().poll != nullptr;
  });
}

void Machine::StepPerhaps() {
  while (random.OneIn(kWorkAtOnce) && StepAny()) {
  }
}

void Machine::DrainStream(cudaStream_t stream) {
  if (stream == nullptr) return;  // the null stream's work is done when it is queued
  Drain(*this, stream, [&] { return stream->queue.empty(); });
}

void Machine::DrainAll() {
  Drain(*this, nullptr, [&] {
    return std::all_of(streams.begin(), streams.end(),
                       [](cudaStream_t stream) { return stream->queue.empty(); });
  });
}

void Machine::ReachEvent(const EventState& event, uint64_t record) {
  Drain(*this, nullptr, [&] { return event.reached >= record; });
}

cudaError_t Machine::Queue(cudaStream_t stream, std::function<void()> run) {
  if (stream == nullptr) {
    // The null stream runs after all that blocking streams hold, and before what they get next.
    for (cudaStream_t other : std::vector(streams)) {
      if (!other->blocking) continue;
      if (other->capture != nullptr) return Spoil(*other->capture, cudaErrorStreamCaptureImplicit);
      DrainStream(other);
    }
    const DeviceArena::Access access(arena);
    run();
    return cudaSuccess;
  }
  if (Capture* capture = stream->capture.get(); capture != nullptr) {
    if (capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    capture->nodes.push_back({std::move(run), stream->captured_after});
    stream->captured_after = {static_cast<int>(capture->nodes.size()) - 1};
    return cudaSuccess;
  }
  stream->queue.push_back({.run = std::move(run)});
  StepPerhaps();
  return cudaSuccess;
}

cudaError_t Machine::QueuePolled(cudaStream_t stream, std::function<bool()> poll) {
  if (stream == nullptr) return cudaErrorNotSupported;
  if (stream->capture != nullptr) {
    return Spoil(*stream->capture, cudaErrorStreamCaptureUnsupported);
  }
  stream->queue.push_back({.poll = std::move(poll)});
  StepPerhaps();
  return cudaSuccess;
}

namespace {

// A priority out of range is taken to the nearest one that is in it, as the real runtime does.
cudaError_t NewStream(cudaStream_t* stream, unsigned int flags, int priority = 0) {
  int least = 0;
  int greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  *stream = new CUstream_st;
  (*stream)->blocking = (flags & cudaStreamNonBlocking) == 0;
  (*stream)->priority = std::clamp(priority, greatest, least);
  machine.streams.push_back(*stream);
  return cudaSuccess;
}

// A synchronous call about a stream: its errors in the order in which the runtime finds them.
cudaError_t EnterStream(Machine& machine, cudaStream_t stream) {
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return error;
  if (!machine.Known(stream)) return cudaErrorInvalidResourceHandle;
  if (stream != nullptr && stream->capture != nullptr) {
    return machine.Spoil(*stream->capture, cudaErrorStreamCaptureUnsupported);
  }
  return machine.AllowSynchronous();
}

cudaError_t EnterEvent(Machine& machine, const EventState& event) {
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return error;
  if (const auto capture = event.capture.lock(); capture != nullptr) {
    return machine.Spoil(*capture, cudaErrorCapturedEvent);
  }
  return machine.AllowSynchronous();
}

// A stream that waits for an event of a capture becomes part of it.
cudaError_t WaitInCapture(Machine& machine, CUstream_st& stream, const EventState& event) {
  const auto of_event = event.capture.lock();
  if (of_event == nullptr) return machine.Spoil(*stream.capture, cudaErrorStreamCaptureIsolation);
  if (of_event->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (stream.capture != nullptr && stream.capture != of_event) {
    machine.Spoil(*of_event, cudaErrorStreamCaptureMerge);
    return machine.Spoil(*stream.capture, cudaErrorStreamCaptureMerge);
  }
  stream.capture = of_event;
  stream.captured_after.insert(stream.captured_after.end(), event.captured_after.begin(),
                               event.captured_after.end());
  return cudaSuccess;
}

}  // namespace
}  // namespace simt

using simt::EventState;
using simt::Machine;
using simt::Report;
using simt::TheMachine;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return simt::NewStream(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return simt::NewStream(stream, flags);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return simt::NewStream(stream, flags, priority);
}
// Streams run in a random order here, so that nothing can depend on priorities: they are only kept.
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (!machine.Known(stream)) return Report(cudaErrorInvalidResourceHandle);
  *priority = stream == nullptr ? 0 : stream->priority;
  return cudaSuccess;
}

// What is queued still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (stream == nullptr || !machine.Known(stream)) return Report(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) machine.Spoil(*stream->capture, cudaErrorUnknown);
  machine.DrainStream(stream);
  std::erase(machine.streams, stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = simt::EnterStream(machine, stream); error != cudaSuccess) {
    return Report(error);
  }
  ++machine.counters.stream_synchronizations;
  machine.DrainStream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = simt::EnterStream(machine, stream); error != cudaSuccess) {
    return Report(error);
  }
  if (stream == nullptr || stream->queue.empty()) return cudaSuccess;
  machine.StepAny();
  return Report(stream->queue.empty() ? cudaSuccess : cudaErrorNotReady);
}

// Of all streams, and so of those that any thread captures, in whatever mode.
cudaError_t cudaDeviceSynchronize() {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  for (const auto& capture : machine.captures) {
    machine.Spoil(*capture, cudaErrorStreamCaptureUnsupported);
  }
  if (!machine.captures.empty()) return Report(cudaErrorStreamCaptureUnsupported);
  ++machine.counters.device_synchronizations;
  machine.DrainAll();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (!machine.Known(stream)) return Report(cudaErrorInvalidResourceHandle);
  EventState& state = *event->state;
  const bool captured = state.capture.lock() != nullptr;
  if (stream != nullptr && (stream->capture != nullptr || captured)) {
    return Report(simt::WaitInCapture(machine, *stream, state));
  }
  if (state.reached == state.recorded) return cudaSuccess;
  if (stream == nullptr) {
    machine.ReachEvent(state, state.recorded);
    return cudaSuccess;
  }
  stream->queue.push_back({.event = event->state, .record = state.recorded});
  machine.StepPerhaps();
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  *event = new CUevent_st;
  (*event)->state->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (event == nullptr) return Report(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (!machine.Known(stream)) return Report(cudaErrorInvalidResourceHandle);
  EventState& state = *event->state;
  if (stream != nullptr && stream->capture != nullptr) {
    if (stream->capture->invalidated) return Report(cudaErrorStreamCaptureInvalidated);
    state.capture = stream->capture;
    state.captured_after = stream->captured_after;
    return cudaSuccess;
  }
  state.capture.reset();
  const uint64_t record = ++state.recorded;
  return Report(machine.Queue(stream, [state = event->state, record] {
    state->reached = std::max(state->reached, record);
    state->time = std::chrono::steady_clock::now();
  }));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  const EventState& state = *event->state;
  if (const cudaError_t error = simt::EnterEvent(machine, state); error != cudaSuccess) {
    return Report(error);
  }
  if (state.reached == state.recorded) return cudaSuccess;
  machine.StepAny();
  return Report(state.reached == state.recorded ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  const std::shared_ptr<EventState> state = event->state;
  if (const cudaError_t error = simt::EnterEvent(machine, *state); error != cudaSuccess) {
    return Report(error);
  }
  machine.ReachEvent(*state, state->recorded);
  return cudaSuccess;
}

// The time that the emulation took: it says nothing about a device.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  const EventState& a = *start->state;
  const EventState& b = *end->state;
  if (!a.timed || !b.timed || a.recorded == 0 || b.recorded == 0) {
    return Report(cudaErrorInvalidResourceHandle);
  }
  if (a.reached != a.recorded || b.reached != b.recorded) return Report(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(b.time - a.time).count();
  return cudaSuccess;
}
