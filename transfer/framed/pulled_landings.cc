#include "transfer/framed/pulled_landings.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<PulledLandings>> PulledLandings::Create(Device& device,
                                                                       FrameReceiver& receiver) {
  ASSIGN_OR_RETURN(ExtentStream stream, ExtentStream::Create(device, kMaxQueued));
  return std::unique_ptr<PulledLandings>(new PulledLandings(device, receiver, std::move(stream)));
}

PulledLandings::PulledLandings(Device& device, FrameReceiver& receiver, ExtentStream stream)
    : device_(device),
      enough_bytes_(device.is_host() ? kEnoughHostBytes : kEnoughBytes),
      receiver_(receiver),
      stream_(std::move(stream)) {
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
  const absl::StatusOr<std::span<const uint64_t>> hashes = stream_.CopyAll(copies_);
  const absl::Status failure = hashes.ok() ? absl::OkStatus()
                                           : Unavailable("{} failed: {}", device_.name(),
                                                         std::string(hashes.status().message()));
  size_t damaged = 0;
  for (size_t i = 0; i < headers_.size(); ++i) {
    const absl::Status status =
        failure.ok() ? CheckPayloadHash(headers_[i], (*hashes)[i]) : failure;
    if (absl::IsDataLoss(status)) ++damaged;
    receiver_.Landed(headers_[i], status);
  }
  headers_.clear();
  copies_.clear();
  bytes_ = 0;
  RETURN_IF_ERROR(failure);
  return damaged;
}

}  // namespace tandem
