#include "transfer/media/ipc/ipc_medium.h"

#include "base/status.h"
#include "transfer/framed/extent_stream.h"
#include "transfer/media/host_medium.h"
#include "transfer/media/ipc/segments.h"
#include "transfer/wire/frame.h"

namespace tandem {
namespace {

// The amount of payload in the host's memory that is worth an Offer. The sender hashes one such
// amount while the receiver copies the one before, which takes about the same time. A GPU is given
// all that there is at once.
constexpr size_t kEnoughHostBytes = size_t{1} << 20;

// The sending side of all connections of a medium. Payloads stay where they are and are hashed
// there.
class IpcSendSideChannel final : public SideChannel {
 public:
  IpcSendSideChannel(SharedSegments segments, ExtentStream stream, size_t enough_bytes)
      : segments_(std::move(segments)), enough_bytes_(enough_bytes), stream_(std::move(stream)) {}

  const SharedSegments& segments() const { return segments_; }
  // The size of the memory into which the device writes the hashes of payloads.
  size_t buffer_bytes() const { return stream_.buffer_bytes(); }

  Room room(uint64_t /*in_flight*/) override {
    return {.payloads = ExtentStream::kMaxExtents,
            .bytes = kMaxPayloadBytes,
            .enough_bytes = enough_bytes_};
  }
  absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload> payloads) override {
    extents_.clear();
    for (OfferedPayload& payload : payloads) {
      ASSIGN_OR_RETURN(payload.handle, segments_.HandleOf(payload.bytes));
      extents_.push_back(payload.bytes);
    }
    ASSIGN_OR_RETURN(const std::span<const uint64_t> hashes, stream_.HashAll(extents_));
    for (size_t i = 0; i < payloads.size(); ++i) payloads[i].hash = hashes[i];
    return 0;
  }

 private:
  const SharedSegments segments_;
  const size_t enough_bytes_;
  ExtentStream stream_;
  std::vector<std::span<const std::byte>> extents_;  // those of the Offer in progress
};

class IpcMedium final : public HostMedium {
 public:
  IpcMedium(Device& device, HostListener listener, std::shared_ptr<IpcSendSideChannel> side_channel)
      : HostMedium(std::move(listener)), device_(device), side_channel_(std::move(side_channel)) {}

  std::string_view name() const override { return "ipc"; }
  bool carries_any_memory() const override { return false; }
  absl::Status MayCarry(std::span<const std::byte> payload) const override {
    return side_channel_->segments().HandleOf(payload).status();
  }
  size_t buffer_bytes() const override { return side_channel_->buffer_bytes(); }

 private:
  absl::StatusOr<SharedMemory> Share() override {
    const SharedSegments& segments = side_channel_->segments();
    return SharedMemory{
        .greeting = segments.greeting(), .files = segments.files(), .side_channel = side_channel_};
  }
  absl::StatusOr<std::unique_ptr<SideChannel>> OpenShared(const MemoryGreeting& greeting,
                                                          std::vector<UniqueFd> files) override {
    ASSIGN_OR_RETURN(OpenedSegments segments,
                     OpenedSegments::Open(device_, greeting, std::move(files)));
    return std::make_unique<OpenedSegments>(std::move(segments));
  }

  Device& device_;
  const std::shared_ptr<IpcSendSideChannel> side_channel_;  // used by all connections
};

}  // namespace

absl::StatusOr<std::unique_ptr<Medium>> OpenIpcMedium(const IpcOptions& options) {
  Device& device = *options.device;
  if (!device.can_share()) {
    return Unimplemented("{} cannot share memory with other processes: use shm or tcp",
                         device.name());
  }
  ASSIGN_OR_RETURN(SharedSegments segments, SharedSegments::Share(device, options.shared));
  ASSIGN_OR_RETURN(HostListener listener, HostListener::Open());
  ASSIGN_OR_RETURN(ExtentStream stream, ExtentStream::Create(device));
  return std::make_unique<IpcMedium>(
      device, std::move(listener),
      std::make_shared<IpcSendSideChannel>(std::move(segments), std::move(stream),
                                           device.is_host() ? kEnoughHostBytes : kMaxPayloadBytes));
}

}  // namespace tandem
