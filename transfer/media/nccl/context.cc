#include "transfer/media/nccl/context.h"

#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "transfer/wire/frame.h"

namespace tandem {
namespace {

// The names under which NCCL's shared library is looked for.
#ifdef TANDEM_NCCL_NAME
constexpr const char* kNcclNames[] = {TANDEM_NCCL_NAME};
#else
constexpr const char* kNcclNames[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"};
#endif

constexpr size_t kPaddingBytes = ExtentStream::kMaxExtents * NcclContext::kPayloadAlignment;

absl::Status CheckOptions(const Device& device, const NcclOptions& options) {
  if (device.is_host()) {
    return FailedPrecondition("device {}: NCCL moves the memory of GPUs: use another KV transport",
                              device.name());
  }
  constexpr size_t kMost = kMaxPayloadBytes - kPaddingBytes;
  if (options.chunk_bytes > 0 && options.chunk_bytes <= kMost) return absl::OkStatus();
  return InvalidArgument("NCCL operations of {} bytes: must be between 1 and {}",
                         options.chunk_bytes, kMost);
}

size_t SlotBytes(const NcclOptions& options) {
  return NcclContext::Align(options.chunk_bytes) + kPaddingBytes - NcclContext::kPayloadAlignment;
}

}  // namespace

size_t NcclDeviceBytes(const NcclOptions& options) {
  return SlotBytes(options) * (options.send_slots + options.receive_slots);
}

NcclReaper::NcclReaper(std::chrono::milliseconds patience)
    : patience_(patience), thread_([state = state_] { Run(state); }) {}

NcclReaper::~NcclReaper() {
  bool stopped = false;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
    state_->changed.Signal();
    const auto has_stopped = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return state_->stopped; };
    stopped = state_->changed.AwaitFor(state_->mutex, patience_, has_stopped);
  }
  if (stopped) {
    thread_.join();
  } else {
    LogError("nccl abort does not return: its communicator and memory are left as they are");
    thread_.detach();
  }
}

void NcclReaper::End(NcclConnection connection) {
  absl::MutexLock lock(&state_->mutex);
  state_->connections.push_back(std::move(connection));
  state_->changed.Signal();
}

absl::Status NcclReaper::health() const {
  absl::MutexLock lock(&state_->mutex);
  if (state_->abort_began == kNoDeadline) return absl::OkStatus();
  const Duration took = std::chrono::steady_clock::now() - state_->abort_began;
  if (took <= patience_) return absl::OkStatus();
  return Unavailable("an abort of an NCCL communicator has taken {:.0f} s: restart this worker",
                     ToMilliseconds(took) / 1e3);
}

size_t NcclReaper::waiting() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->connections.size() + (state_->abort_began != kNoDeadline ? 1 : 0);
}

void NcclReaper::Run(const std::shared_ptr<State>& state) {
  NameThisThread("nccl-reaper");
  while (std::optional<NcclConnection> ending = TakeOne(*state)) {
    ending.reset();
    absl::MutexLock lock(&state->mutex);
    state->abort_began = kNoDeadline;
  }
}

std::optional<NcclConnection> NcclReaper::TakeOne(State& state) {
  absl::MutexLock lock(&state.mutex);
  const auto has_work = [&state]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !state.connections.empty() || state.stopping;
  };
  state.changed.AwaitUntil(state.mutex, kNoDeadline, has_work);
  if (state.connections.empty()) {
    state.stopped = true;
    state.changed.Signal();
    return std::nullopt;
  }
  std::optional<NcclConnection> first = std::move(state.connections.front());
  state.connections.pop_front();
  state.abort_began = std::chrono::steady_clock::now();
  return first;
}

NcclContext::NcclContext(Device& device, const NcclOptions& options)
    : device_(device), options_(options), reaper_(options.abort_patience) {}

absl::StatusOr<std::unique_ptr<NcclContext>> NcclContext::Open(Device& device,
                                                               const NcclOptions& options) {
  RETURN_IF_ERROR(CheckOptions(device, options));
  std::unique_ptr<NcclContext> context(new NcclContext(device, options));
  ASSIGN_OR_RETURN(context->nccl_, NcclLibrary::Open(kNcclNames));
  const size_t slot_bytes = SlotBytes(options);
  for (const auto& [slots, count] : {std::pair(&context->send_slots_, options.send_slots),
                                     std::pair(&context->receive_slots_, options.receive_slots)}) {
    ASSIGN_OR_RETURN(DeviceBuffer memory, device.Allocate(slot_bytes * count));
    *slots = std::make_shared<SlotPool>(std::move(memory), slot_bytes);
  }
  ASSIGN_OR_RETURN(context->copy_stream_, ExtentStream::Create(device));
  return context;
}

size_t NcclContext::buffer_bytes() const {
  return send_slots_->size_bytes() + receive_slots_->size_bytes() + copy_stream_->buffer_bytes();
}

absl::StatusOr<ncclUniqueId> NcclContext::NewId(uint64_t& epoch) {
  if (made_ids_ - used_ids_ >= kMaxUnusedIds) {
    return ResourceExhausted(
        "NCCL listens for {} peers that never came: restart this worker to use NCCL again",
        kMaxUnusedIds);
  }
  ncclUniqueId id;
  RETURN_IF_ERROR(nccl_->ToStatus(nccl_->get_unique_id(&id), "make an NCCL id"));
  epoch = ++made_ids_;
  return id;
}

}  // namespace tandem
