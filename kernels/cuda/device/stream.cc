#include "kernels/cuda/device/stream.h"

#include <utility>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"

namespace tandem::cuda {
namespace {

class CudaEvent final : public Event {
 public:
  CudaEvent(cudaEvent_t handle, std::shared_ptr<EventPool> pool)
      : handle_(handle), pool_(std::move(pool)) {}
  ~CudaEvent() override { pool_->GiveBack(handle_); }

  // True also when the device has failed: Synchronize reports the failure.
  bool Done() const override { return cudaEventQuery(handle_) != cudaErrorNotReady; }
  absl::Status Synchronize() override {
    return ToStatus(cudaEventSynchronize(handle_), "wait for an event");
  }

  cudaEvent_t handle() const { return handle_; }

 private:
  const cudaEvent_t handle_;
  const std::shared_ptr<EventPool> pool_;
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t handle) : handle_(handle) {}
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override { cudaGraphExecDestroy(handle_); }

  cudaGraphExec_t handle() const { return handle_; }

 private:
  const cudaGraphExec_t handle_;
};

}  // namespace

EventPool::~EventPool() {
  absl::MutexLock lock(&mutex_);
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

absl::StatusOr<cudaEvent_t> EventPool::Take() {
  {
    absl::MutexLock lock(&mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
  return event;
}

void EventPool::GiveBack(cudaEvent_t event) {
  absl::MutexLock lock(&mutex_);
  free_.push_back(event);
}

CudaStream::~CudaStream() {
  cudaSetDevice(device_index_);
  if (recording_) EndRecording().IgnoreError();
  cudaStreamSynchronize(handle_);
  cudaStreamDestroy(handle_);
}

absl::Status CudaStream::Enter() const {
  return ToStatus(cudaSetDevice(device_index_), "use the device");
}

absl::Status CudaStream::Note(absl::Status status) {
  if (recording_ && recording_status_.ok()) recording_status_ = status;
  return status;
}

absl::Status CudaStream::Copy(std::span<std::byte> dst, std::span<const std::byte> src) {
  if (dst.size() != src.size()) {
    return Note(InvalidArgument("copy of {} bytes into {}: the sizes must be equal", src.size(),
                                dst.size()));
  }
  if (src.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(Note(Enter()));
  return Note(
      ToStatus(cudaMemcpyAsync(dst.data(), src.data(), src.size(), cudaMemcpyDefault, handle_),
               "queue a copy"));
}

absl::StatusOr<std::unique_ptr<Event>> CudaStream::Record() {
  RETURN_IF_ERROR(Note(Enter()));
  absl::StatusOr<cudaEvent_t> taken = events_->Take();
  if (!taken.ok()) return Note(taken.status());
  auto event = std::make_unique<CudaEvent>(*taken, events_);
  RETURN_IF_ERROR(Note(ToStatus(cudaEventRecord(event->handle(), handle_), "record an event")));
  return event;
}

absl::Status CudaStream::Wait(const Event& event) {
  RETURN_IF_ERROR(Note(Enter()));
  const cudaEvent_t handle = static_cast<const CudaEvent&>(event).handle();
  return Note(ToStatus(cudaStreamWaitEvent(handle_, handle, 0), "queue a wait for an event"));
}

absl::Status CudaStream::Synchronize() {
  return Note(ToStatus(cudaStreamSynchronize(handle_), "wait for a stream"));
}

absl::Status CudaStream::BeginRecording() {
  if (recording_) return Note(FailedPrecondition("the stream is recording already"));
  RETURN_IF_ERROR(Enter());
  RETURN_IF_CUDA_ERROR(cudaStreamBeginCapture(handle_, cudaStreamCaptureModeThreadLocal),
                       "begin a recording");
  recording_ = true;
  recording_status_ = absl::OkStatus();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Graph>> CudaStream::EndRecording() {
  if (!recording_) return FailedPrecondition("the stream is not recording");
  recording_ = false;
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(handle_, &graph);
  cudaGraphExec_t exec = nullptr;
  absl::Status status = std::exchange(recording_status_, absl::OkStatus());
  if (status.ok()) status = ToStatus(ended, "end a recording");
  if (status.ok()) status = ToStatus(cudaGraphInstantiate(&exec, graph, 0), "make a graph");
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!status.ok()) {
    cudaGetLastError();
    return status;
  }
  auto recorded = std::make_unique<CudaGraph>(exec);
  RETURN_IF_CUDA_ERROR(cudaGraphUpload(exec, handle_), "upload a graph");
  return recorded;
}

absl::Status CudaStream::Launch(Graph& graph) {
  RETURN_IF_ERROR(Note(Enter()));
  return Note(ToStatus(cudaGraphLaunch(static_cast<CudaGraph&>(graph).handle(), handle_),
                       "launch a graph"));
}

}  // namespace tandem::cuda
