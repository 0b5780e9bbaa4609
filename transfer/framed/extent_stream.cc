#include "transfer/framed/extent_stream.h"

#include "base/check.h"
#include "base/status.h"

namespace tandem {

absl::StatusOr<ExtentStream> ExtentStream::Create(Device& device, size_t max_extents) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream());
  ASSIGN_OR_RETURN(DeviceBuffer hashes, device.AllocateHost(max_extents * sizeof(uint64_t)));
  return ExtentStream(std::move(stream), std::move(hashes));
}

std::span<uint64_t> ExtentStream::hashes(size_t count) {
  TANDEM_CHECK(count <= hash_memory_.size() / sizeof(uint64_t), "more extents than there is room");
  return {reinterpret_cast<uint64_t*>(hash_memory_.data()), count};
}

absl::StatusOr<std::span<const uint64_t>> ExtentStream::CopyAll(
    std::span<const ExtentCopy> copies) {
  const std::span<uint64_t> hashes = this->hashes(copies.size());
  RETURN_IF_ERROR(Await(stream_->CopyAll(copies, hashes)));
  return hashes;
}

absl::StatusOr<std::span<const uint64_t>> ExtentStream::HashAll(
    std::span<const std::span<const std::byte>> extents) {
  const std::span<uint64_t> hashes = this->hashes(extents.size());
  RETURN_IF_ERROR(Await(stream_->HashAll(extents, hashes)));
  return hashes;
}

// Waits even if queueing failed, because part of the work may have been queued.
absl::Status ExtentStream::Await(const absl::Status& queued) {
  const absl::Status done = stream_->Synchronize();
  return queued.ok() ? done : queued;
}

}  // namespace tandem
