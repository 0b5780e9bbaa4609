#include "transfer/media/nccl/communicator.h"

#include "base/status.h"

namespace tandem {
namespace {

// These thread blocks reach the rate of the copy engines and leave the rest of the GPU to the model.
constexpr int kMinThreadBlocks = 1;
constexpr int kMaxThreadBlocks = 8;
constexpr int kRanks = 2;

cudaStream_t HandleOf(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Begin(
    std::shared_ptr<const NcclLibrary> nccl, const ncclUniqueId& id, int rank, std::string name) {
  std::unique_ptr<NcclCommunicator> communicator(
      new NcclCommunicator(std::move(nccl), rank, std::move(name)));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = kMinThreadBlocks;
  config.maxCTAs = kMaxThreadBlocks;
  config.commName = communicator->name_.c_str();
  const NcclLibrary& library = *communicator->nccl_;
  RETURN_IF_ERROR(
      library.ToStatus(library.init_rank(&communicator->handle_, kRanks, id, rank, &config),
                       "make an NCCL communicator"));
  return communicator;
}

NcclCommunicator::~NcclCommunicator() {
  if (handle_ != nullptr) nccl_->abort(handle_);
}

absl::StatusOr<bool> NcclCommunicator::Poll() {
  ncclResult_t state = ncclInProgress;
  RETURN_IF_ERROR(nccl_->ToStatus(nccl_->get_async_error(handle_, &state), "ask NCCL"));
  if (state == ncclInProgress) return false;
  if (state == ncclSuccess) return true;
  return Unavailable("NCCL: {}: {}", nccl_->error_string(state), nccl_->last_error(handle_));
}

absl::Status NcclCommunicator::Send(std::span<const std::byte> bytes, const Stream& stream) {
  return nccl_->ToStatus(
      nccl_->send(bytes.data(), bytes.size(), ncclUint8, peer(), handle_, HandleOf(stream)),
      "send with NCCL");
}

absl::Status NcclCommunicator::Receive(std::span<std::byte> bytes, const Stream& stream) {
  return nccl_->ToStatus(
      nccl_->receive(bytes.data(), bytes.size(), ncclUint8, peer(), handle_, HandleOf(stream)),
      "receive with NCCL");
}

}  // namespace tandem
