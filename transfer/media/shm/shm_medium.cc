#include "transfer/media/shm/shm_medium.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "transfer/media/shm/shm_channel.h"
#include "transfer/media/unix_socket.h"

namespace tandem {
namespace {

constexpr size_t kHostSlotBytes = size_t{4} << 20;  // fits into the caches
// Each wait for a GPU costs as much time as a megabyte, so more is copied at once.
constexpr size_t kDeviceSlotBytes = size_t{16} << 20;
// Enough that both sides have something to do, however large the payloads are.
constexpr size_t kPayloadsPerSlot = 4;

absl::StatusOr<SlotLayout> LayoutOf(const ShmOptions& options) {
  const size_t others = 2 * options.ring_bytes + SlotLayout::kControlBytes;
  const size_t least = others + 2 * options.max_payload_bytes;
  if (options.slot_bytes <= others || options.slot_bytes < least ||
      (options.buffer_bytes > 0 && options.buffer_bytes < options.slot_bytes)) {
    return InvalidArgument(
        "shared memory of {} bytes in slots of {}: a slot for payloads of {} has at least {}, and "
        "one must fit",
        options.buffer_bytes, options.slot_bytes, options.max_payload_bytes, least);
  }
  const SlotLayout layout = {.area_bytes = options.slot_bytes - others,
                             .forward_bytes = options.ring_bytes,
                             .back_bytes = options.ring_bytes};
  RETURN_IF_ERROR(CheckLayout(layout));
  return layout;
}

// The peer sees the end of the connection if this refusal does not reach it.
void Tell(const UniqueFd& socket, absl::StatusCode refusal) {
  SendWithDescriptors(socket.get(), EncodeShmSetup({.code = refusal}), {}).IgnoreError();
}

// The descriptors of a connection beside its socket.
struct Wiring {
  UniqueFd to_acceptor;
  UniqueFd to_connector;
  UniqueFd watch;
};

absl::StatusOr<Wiring> NewWiring(const UniqueFd& socket) {
  Wiring wiring;
  ASSIGN_OR_RETURN(wiring.to_acceptor, NewDoorbell());
  ASSIGN_OR_RETURN(wiring.to_connector, NewDoorbell());
  ASSIGN_OR_RETURN(wiring.watch, NewWatch(socket.get()));
  RETURN_IF_ERROR(AddToWatch(wiring.watch, wiring.to_acceptor.get()));
  return wiring;
}

}  // namespace

size_t ShmSlotBytes(const Device& device, size_t max_payload_bytes) {
  return std::max(device.is_host() ? kHostSlotBytes : kDeviceSlotBytes,
                  std::bit_ceil(kPayloadsPerSlot * max_payload_bytes));
}

absl::StatusOr<std::unique_ptr<ShmMedium>> ShmMedium::Open(const ShmOptions& options) {
  ASSIGN_OR_RETURN(const SlotLayout layout, LayoutOf(options));
  ASSIGN_OR_RETURN(auto slots,
                   SlotPool::Create(layout, options.buffer_bytes / layout.slot_bytes()));
  ASSIGN_OR_RETURN(DeviceBuffer registration, options.device->RegisterHost(slots->memory()));
  ASSIGN_OR_RETURN(ExtentStream stream,
                   ExtentStream::Create(*options.device, AreaCopier::kMaxPayloads));
  ASSIGN_OR_RETURN(HostListener listener, HostListener::Open());
  return std::unique_ptr<ShmMedium>(new ShmMedium(
      *options.device, std::move(listener), std::move(slots), std::move(registration),
      {.stream = std::move(stream), .max_payload_bytes = options.max_payload_bytes, .copies = {}}));
}

absl::Status ShmMedium::MayCarry(std::span<const std::byte> payload) const {
  if (payload.size() <= copier_.max_payload_bytes) return absl::OkStatus();
  return InvalidArgument("a payload of {} bytes: at most {} go over shared memory here",
                         payload.size(), copier_.max_payload_bytes);
}

absl::StatusOr<std::unique_ptr<ByteChannel>> ShmMedium::Accept() {
  while (true) {
    ASSIGN_OR_RETURN(UniqueFd socket, listener_.Accept());
    if (!socket.valid()) return nullptr;
    if (!PeerIsSameUser(socket.get())) {
      Tell(socket, absl::StatusCode::kPermissionDenied);
      return MakeStatus(absl::StatusCode::kPermissionDenied, "shm: the peer is of another user");
    }
    if (auto channel = Welcome(std::move(socket))) return channel;
  }
}

// Null when there is no slot for the peer, or when the peer is gone already.
std::unique_ptr<ByteChannel> ShmMedium::Welcome(UniqueFd socket) {
  absl::StatusOr<Wiring> wiring = NewWiring(socket);
  const std::optional<size_t> slot = wiring.ok() ? slots_->Take() : std::nullopt;
  if (!slot) {
    RefuseForRoom(socket);
    return nullptr;
  }
  const auto setup = EncodeShmSetup({.layout = slots_->layout()});
  const std::array<int, kSlotDescriptors> descriptors = {
      slots_->memfd(*slot).get(), wiring->to_acceptor.get(), wiring->to_connector.get()};
  if (!SendWithDescriptors(socket.get(), setup, descriptors).ok()) {
    slots_->Drain(*slot, std::move(socket));
    return nullptr;
  }
  return std::make_unique<AcceptedShmChannel>(
      std::move(socket), std::move(wiring->watch),
      Doorbell(std::move(wiring->to_acceptor), std::move(wiring->to_connector)), core_choice_,
      *slots_, *slot);
}

void ShmMedium::RefuseForRoom(const UniqueFd& socket) {
  Tell(socket, absl::StatusCode::kResourceExhausted);
  // Only the 1st, 2nd, 4th and so on are logged, because peers try again and again.
  if (!std::has_single_bit(++refused_for_room_)) return;
  LogWarn("shared-memory connection refused so_far={}: all {} slots are taken", refused_for_room_,
          slots_->size());
}

absl::StatusOr<std::unique_ptr<ByteChannel>> ShmMedium::Connect(std::string_view peer) {
  ASSIGN_OR_RETURN(UniqueFd socket, listener_.Connect(peer));
  ASSIGN_OR_RETURN(UniqueFd watch, NewWatch(socket.get()));
  return std::make_unique<ConnectedShmChannel>(std::move(socket), std::move(watch), device_,
                                               copier_);
}

}  // namespace tandem
