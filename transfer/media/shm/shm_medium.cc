#include "transfer/media/shm/shm_medium.h"

#include <sched.h>

#include <algorithm>
#include <bit>

#include "base/status.h"
#include "transfer/framed/extent_stream.h"
#include "transfer/media/host_medium.h"
#include "transfer/media/shm/area.h"
#include "transfer/media/shm/shared_memory.h"

namespace tandem {
namespace {

constexpr size_t kHostAreaBytes = size_t{4} << 20;  // fits into the caches
// The size of an area for payloads of a GPU. Each wait for a GPU costs as much time as copying a
// megabyte, so more is copied at once than on the host.
constexpr size_t kDeviceAreaBytes = size_t{16} << 20;
// The number of parts of an area. One part is copied at once, so that the peer works on one part
// while this side works on the next, however large the payloads are.
constexpr size_t kPiecesPerArea = 4;
// The handle of a payload has its offset in the area in the lower bits. Above them is 0, or one
// more than the number of the core on which the sender goes on copying.
constexpr uint64_t kCoreUnit = uint64_t{1} << 48;

uint64_t ThisCore() { return static_cast<uint64_t>(sched_getcpu() + 1) * kCoreUnit; }

// Moves this thread to another core that it may use, if there is one, and restricts it no further.
void LeaveThisCore() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<size_t>(sched_getcpu()), &others);
  if (sched_setaffinity(0, sizeof(others), &others) != 0) return;
  sched_setaffinity(0, sizeof(allowed), &allowed);
}

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

// Shared memory of this process that its device reaches by itself. Move-only.
struct RelayMemory {
  UniqueFd file;
  DeviceBuffer mapping;
  DeviceBuffer registration;  // of `mapping` with the device; destroyed before it
};

// Errors as NewSharedMemory and Device::RegisterHost.
absl::StatusOr<RelayMemory> NewRelayMemory(Device& device, size_t bytes) {
  RelayMemory memory;
  ASSIGN_OR_RETURN(memory.file, NewSharedMemory(bytes));
  ASSIGN_OR_RETURN(memory.mapping, MapShared(memory.file, bytes));
  ASSIGN_OR_RETURN(memory.registration, device.RegisterHost(memory.mapping.bytes()));
  return memory;
}

// What the sending connections of one medium share. Thread: the loop's.
struct ShmSender {
  // The areas that no connection uses. Each is a file of its own, so that a peer maps its
  // connection's area and nothing else.
  std::vector<RelayMemory> free_areas;
  ExtentStream stream;             // used by one connection at a time
  std::vector<ExtentCopy> copies;  // those of the Offer in progress
};

// The sending end of a connection: copies payloads into its area and hashes them in the same pass.
class ShmSendSideChannel final : public SideChannel {
 public:
  // `sender` is the medium's and outlives this object; the destructor gives `memory` back to it.
  // `piece_bytes` as for Area.
  ShmSendSideChannel(ShmSender& sender, RelayMemory memory, size_t piece_bytes)
      : sender_(sender), memory_(std::move(memory)), area_(memory_.mapping.bytes(), piece_bytes) {}
  ~ShmSendSideChannel() override { sender_.free_areas.push_back(std::move(memory_)); }

  Room room(uint64_t in_flight) override {
    area_.KeepLatest(in_flight);
    const size_t bytes = area_.Room();
    if (bytes == 0) return {.peer_holds_it = true};
    return {
        .payloads = ExtentStream::kMaxExtents, .bytes = bytes, .enough_bytes = area_.piece_bytes()};
  }

  absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload> payloads) override {
    sender_.copies.clear();
    size_t bytes = 0;
    for (OfferedPayload& payload : payloads) {
      bytes += payload.bytes.size();
      payload.handle = area_.Take(payload.bytes.size());
      sender_.copies.push_back(
          {.dst = area_.At(payload.handle, payload.bytes.size()), .src = payload.bytes});
    }
    ASSIGN_OR_RETURN(const std::span<const uint64_t> hashes,
                     sender_.stream.CopyAll(sender_.copies));
    // Names this core to the peer unless less than a part was offered: then the sender has nothing
    // more to copy for now, and the peer may use the core.
    const uint64_t core = bytes < area_.piece_bytes() ? 0 : ThisCore();
    for (size_t i = 0; i < payloads.size(); ++i) {
      payloads[i].hash = hashes[i];
      payloads[i].handle |= core;
    }
    return 0;
  }
  bool keeps_copies() const override { return true; }

 private:
  ShmSender& sender_;
  RelayMemory memory_;
  Area area_;
};

// The receiving end of a connection: finds payloads in the sender's area.
class ShmReceiveSideChannel final : public SideChannel {
 public:
  ShmReceiveSideChannel(DeviceBuffer mapping, DeviceBuffer registration)
      : mapping_(std::move(mapping)), registration_(std::move(registration)) {}

  absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const override {
    const std::span<const std::byte> area = mapping_.bytes();
    const uint64_t offset = handle % kCoreUnit;
    // The kernel tends to wake this thread on the sender's core and to leave it there. Sender and
    // receiver would copy in turns, at half the rate.
    if (handle - offset == ThisCore()) LeaveThisCore();
    if (offset <= area.size() && bytes <= area.size() - offset) return area.subspan(offset, bytes);
    return InvalidArgument("a payload of {} bytes at {} of an area of {}", bytes, offset,
                           area.size());
  }

 private:
  const DeviceBuffer mapping_;
  const DeviceBuffer registration_;  // of the mapping with the device; destroyed before it
};

class ShmMedium final : public HostMedium {
 public:
  ShmMedium(const ShmOptions& options, HostListener listener, ShmSender sender)
      : HostMedium(std::move(listener)), options_(options), sender_(std::move(sender)) {}

  std::string_view name() const override { return "shm"; }
  absl::Status MayCarry(std::span<const std::byte> payload) const override {
    if (payload.size() <= options_.max_payload_bytes) return absl::OkStatus();
    return InvalidArgument("a payload of {} bytes: at most {} go over shared memory here",
                           payload.size(), options_.max_payload_bytes);
  }
  size_t buffer_bytes() const override {
    return num_areas() * options_.area_bytes + sender_.stream.buffer_bytes();
  }

 private:
  size_t num_areas() const { return options_.buffer_bytes / options_.area_bytes; }
  absl::StatusOr<SharedMemory> Share() override {
    if (sender_.free_areas.empty()) {
      return Unavailable(
          "no shared memory left: each of the {} areas serves a connection (--kv-buffer-bytes)",
          num_areas());
    }
    RelayMemory memory = std::move(sender_.free_areas.back());
    sender_.free_areas.pop_back();
    const int file = memory.file.get();
    const size_t piece_bytes =
        std::max(options_.max_payload_bytes, options_.area_bytes / kPiecesPerArea);
    return SharedMemory{.greeting = {.segments = {{.kind = MemoryHandle::Kind::kHostFile,
                                                   .bytes = options_.area_bytes}}},
                        .files = {file},
                        .side_channel = std::make_shared<ShmSendSideChannel>(
                            sender_, std::move(memory), piece_bytes)};
  }
  absl::StatusOr<std::unique_ptr<SideChannel>> OpenShared(const MemoryGreeting& greeting,
                                                          std::vector<UniqueFd> files) override {
    const bool is_area = greeting.segments.size() == 1 && files.size() == 1 &&
                         greeting.segments[0].kind == MemoryHandle::Kind::kHostFile;
    if (!is_area) {
      return FailedPrecondition(
          "the peer shares {} pieces of memory with {} files: one of each is an area",
          greeting.segments.size(), files.size());
    }
    if (greeting.segments[0].bytes > kMaxAreaBytes) {
      return FailedPrecondition("the peer shares an area of {} bytes: at most {} are mapped",
                                greeting.segments[0].bytes, kMaxAreaBytes);
    }
    ASSIGN_OR_RETURN(DeviceBuffer mapping, MapPeerMemory(files[0], greeting.segments[0].bytes));
    ASSIGN_OR_RETURN(DeviceBuffer registration, options_.device->RegisterHost(mapping.bytes()));
    return std::make_unique<ShmReceiveSideChannel>(std::move(mapping), std::move(registration));
  }

  const ShmOptions options_;
  ShmSender sender_;
};

}  // namespace

size_t ShmAreaBytes(const Device& device, size_t max_payload_bytes) {
  return std::max(device.is_host() ? kHostAreaBytes : kDeviceAreaBytes,
                  std::bit_ceil(kPiecesPerArea * max_payload_bytes));
}

absl::StatusOr<std::unique_ptr<Medium>> OpenShmMedium(const ShmOptions& options) {
  RETURN_IF_ERROR(CheckSizes(options));
  std::vector<RelayMemory> areas(options.buffer_bytes / options.area_bytes);
  for (RelayMemory& area : areas) {
    ASSIGN_OR_RETURN(area, NewRelayMemory(*options.device, options.area_bytes));
  }
  ASSIGN_OR_RETURN(ExtentStream stream, ExtentStream::Create(*options.device));
  ASSIGN_OR_RETURN(HostListener listener, HostListener::Open());
  return std::make_unique<ShmMedium>(
      options, std::move(listener),
      ShmSender{.free_areas = std::move(areas), .stream = std::move(stream), .copies = {}});
}

}  // namespace tandem
