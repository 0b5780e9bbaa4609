#include "transfer/media/shm/shm_medium.h"

#include <algorithm>
#include <bit>

#include "base/status.h"

namespace tandem {
namespace {

constexpr size_t kHostAreaBytes = size_t{4} << 20;  // fits into the caches
// Each wait for a GPU costs as much time as a megabyte, so more is copied at once.
constexpr size_t kDeviceAreaBytes = size_t{16} << 20;
// A part of the area is copied at once, so that the peer works on one part while this side works on
// the next, however large the payloads are.
constexpr size_t kPiecesPerArea = 4;

absl::Status CheckSizes(const ShmOptions& options) {
  const bool fits = options.max_payload_bytes <= options.area_bytes / 2 &&
                    (options.buffer_bytes == 0 || options.buffer_bytes >= options.area_bytes);
  if (fits && options.area_bytes > 0 && options.area_bytes <= kMaxAreaBytes) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "shared memory of {} bytes in areas of {}: an area holds two payloads of {}, one area must "
      "fit, and it has at most {} bytes",
      options.buffer_bytes, options.area_bytes, options.max_payload_bytes, kMaxAreaBytes);
}

}  // namespace

size_t ShmAreaBytes(const Device& device, size_t max_payload_bytes) {
  return std::max(device.is_host() ? kHostAreaBytes : kDeviceAreaBytes,
                  std::bit_ceil(kPiecesPerArea * max_payload_bytes));
}

absl::StatusOr<std::unique_ptr<ShmMedium>> ShmMedium::Open(const ShmOptions& options) {
  RETURN_IF_ERROR(CheckSizes(options));
  ASSIGN_OR_RETURN(auto areas, AreaPool::Create(*options.device, options.area_bytes,
                                                options.buffer_bytes / options.area_bytes));
  ASSIGN_OR_RETURN(ExtentStream stream,
                   ExtentStream::Create(*options.device, AreaCopier::kMaxPayloads));
  ASSIGN_OR_RETURN(HostListener listener, HostListener::Open());
  return std::unique_ptr<ShmMedium>(new ShmMedium(options, std::move(listener), std::move(areas),
                                                  {.stream = std::move(stream), .copies = {}}));
}

absl::Status ShmMedium::MayCarry(std::span<const std::byte> payload) const {
  if (payload.size() <= options_.max_payload_bytes) return absl::OkStatus();
  return InvalidArgument("a payload of {} bytes: at most {} go over shared memory here",
                         payload.size(), options_.max_payload_bytes);
}

absl::StatusOr<HostMedium::SharedMemory> ShmMedium::Share() {
  const std::optional<size_t> area = areas_->Take();
  if (!area) {
    return Unavailable(
        "no shared memory left: each of the {} areas serves a connection (--kv-buffer-bytes)",
        areas_->count());
  }
  const size_t piece_bytes =
      std::max(options_.max_payload_bytes, options_.area_bytes / kPiecesPerArea);
  return SharedMemory{
      .greeting = {.segments = {{.kind = MemoryHandle::Kind::kHostFile,
                                 .bytes = options_.area_bytes}}},
      .files = {(*areas_)[*area].file.get()},
      .side_channel = std::make_shared<ShmSendSideChannel>(*areas_, *area, piece_bytes, copier_)};
}

absl::StatusOr<std::unique_ptr<SideChannel>> ShmMedium::OpenMemory(const MemoryGreeting& greeting,
                                                                   std::vector<UniqueFd> files) {
  const bool is_area = greeting.segments.size() == 1 && files.size() == 1 &&
                       greeting.segments[0].kind == MemoryHandle::Kind::kHostFile;
  if (!is_area) {
    return FailedPrecondition(
        "the peer shares {} pieces of memory with {} files: one of each is "
        "an area",
        greeting.segments.size(), files.size());
  }
  if (greeting.segments[0].bytes > kMaxAreaBytes) {
    return FailedPrecondition("the peer shares an area of {} bytes: at most {} are mapped",
                              greeting.segments[0].bytes, kMaxAreaBytes);
  }
  ASSIGN_OR_RETURN(Mapping mapping, MapPeerMemory(files[0], greeting.segments[0].bytes));
  ASSIGN_OR_RETURN(DeviceBuffer registration, options_.device->RegisterHost(mapping.bytes()));
  return std::make_unique<ShmReceiveSideChannel>(std::move(mapping), std::move(registration));
}

}  // namespace tandem
