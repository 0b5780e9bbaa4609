#include "transfer/framed/pulled_landings.h"

#include <string>

#include "base/check.h"
#include "base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<PulledLandings>> PulledLandings::Create(Device& device,
                                                                       FrameReceiver& receiver) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream());
  ASSIGN_OR_RETURN(DeviceBuffer hashes, device.AllocateHost(kMaxQueued * sizeof(uint64_t)));
  return std::unique_ptr<PulledLandings>(
      new PulledLandings(device, receiver, std::move(stream), std::move(hashes)));
}

PulledLandings::PulledLandings(Device& device, FrameReceiver& receiver,
                               std::unique_ptr<Stream> stream, DeviceBuffer hashes)
    : device_(device), receiver_(receiver), stream_(std::move(stream)), hashes_(std::move(hashes)) {
  headers_.reserve(kMaxQueued);
  copies_.reserve(kMaxQueued);
}

void PulledLandings::Queue(const FrameHeader& header, std::span<const std::byte> source,
                           std::span<std::byte> place) {
  TANDEM_CHECK(!full(), "a landing that there is no room for");
  TANDEM_CHECK(place.size() == header.payload_bytes, "a landing place of another size");
  headers_.push_back(header);
  copies_.push_back({.dst = place, .src = source});
  bytes_ += place.size();
}

absl::StatusOr<size_t> PulledLandings::Flush() {
  if (empty()) return 0;
  const absl::Status copied = CopyAll();
  size_t damaged = 0;
  for (size_t i = 0; i < headers_.size(); ++i) {
    const absl::Status status = copied.ok() ? Verdict(i) : copied;
    if (absl::IsDataLoss(status)) ++damaged;
    receiver_.Landed(headers_[i], status);
  }
  headers_.clear();
  copies_.clear();
  bytes_ = 0;
  RETURN_IF_ERROR(copied);
  return damaged;
}

// Once it returned nothing is read or written any more, even where it failed.
absl::Status PulledLandings::CopyAll() {
  const absl::Status queued = stream_->CopyAll(copies_, hashes().first(copies_.size()));
  const absl::Status done = stream_->Synchronize();
  const absl::Status& status = queued.ok() ? done : queued;
  if (status.ok()) return absl::OkStatus();
  return Unavailable("{} failed: {}", device_.name(), std::string(status.message()));
}

absl::Status PulledLandings::Verdict(size_t index) const {
  const FrameHeader& header = headers_[index];
  return CheckPayloadHash(header, hashes()[index]);
}

std::span<uint64_t> PulledLandings::hashes() const {
  return {reinterpret_cast<uint64_t*>(hashes_.data()), kMaxQueued};
}

}  // namespace tandem
