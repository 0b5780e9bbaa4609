#include "transfer/shm/shm_medium.h"

#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "base/status.h"
#include "spdlog/spdlog.h"
#include "transfer/shm/shm_channel.h"
#include "transfer/shm/unix_socket.h"

namespace tandem {
namespace {

absl::StatusOr<SlotLayout> LayoutOf(const ShmOptions& options) {
  const size_t others = options.back_ring_bytes + SlotLayout::kControlBytes;
  if (options.slot_bytes <= others || options.buffer_bytes < options.slot_bytes) {
    return InvalidArgument(
        "shared memory of {} bytes in slots of {}: a slot must be larger than {} and one must fit",
        options.buffer_bytes, options.slot_bytes, others);
  }
  const SlotLayout layout = {.forward_bytes = options.slot_bytes - others,
                             .back_bytes = options.back_ring_bytes};
  RETURN_IF_ERROR(CheckLayout(layout));
  return layout;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmMedium>> ShmMedium::Open(const ShmOptions& options) {
  ASSIGN_OR_RETURN(const SlotLayout layout, LayoutOf(options));
  ShmAddress address;
  ASSIGN_OR_RETURN(address.host, ShmHost());
  ASSIGN_OR_RETURN(address.name, NewShmName());
  ASSIGN_OR_RETURN(auto slots,
                   SlotPool::Create(layout, options.buffer_bytes / layout.slot_bytes()));
  ASSIGN_OR_RETURN(UniqueFd listener, ListenUnix(address.name));
  return std::unique_ptr<ShmMedium>(
      new ShmMedium(std::move(address), std::move(listener), std::move(slots)));
}

absl::Status ShmMedium::MayReach(std::string_view peer) const {
  ASSIGN_OR_RETURN(const ShmAddress address, ParseShmAddress(peer));
  if (address.host == address_.host) return absl::OkStatus();
  return Unavailable("{} is on another host or in another network namespace", peer);
}

absl::StatusOr<std::unique_ptr<ByteChannel>> ShmMedium::Accept() {
  while (true) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return ResourceExhausted("cannot accept: {}", ErrnoMessage(errno));
      }
      return nullptr;
    }
    if (auto channel = Welcome(std::move(socket))) return channel;
  }
}

// Null when the peer was refused, or has gone meanwhile.
std::unique_ptr<ByteChannel> ShmMedium::Welcome(UniqueFd socket) {
  if (!PeerIsSameUser(socket)) {
    Refuse(socket, absl::StatusCode::kPermissionDenied, refused_strangers_);
    return nullptr;
  }
  const std::optional<size_t> slot = slots_->Take();
  if (!slot) {
    Refuse(socket, absl::StatusCode::kResourceExhausted, refused_for_room_);
    return nullptr;
  }
  const auto setup = EncodeShmSetup({.layout = slots_->layout()});
  const absl::Status sent = SendWithDescriptor(socket, setup, slots_->memfd(*slot).get());
  if (!sent.ok()) {
    slots_->Leave(*slot, std::move(socket));
    return nullptr;
  }
  return std::make_unique<AcceptedShmChannel>(std::move(socket), *slots_, *slot);
}

void ShmMedium::Refuse(const UniqueFd& socket, absl::StatusCode code, uint64_t& count) {
  // Should it not get there, the peer sees the end of the connection.
  SendWithDescriptor(socket, EncodeShmSetup({.code = code}), -1).IgnoreError();
  // Peers try again: a line for each would fill the disk.
  if (!std::has_single_bit(++count)) return;
  spdlog::warn("shared-memory connection refused code={} so_far={} slots={}",
               static_cast<int>(code), count, slots_->size());
}

absl::StatusOr<std::unique_ptr<ByteChannel>> ShmMedium::Connect(std::string_view peer) {
  ASSIGN_OR_RETURN(const ShmAddress address, ParseShmAddress(peer));
  ASSIGN_OR_RETURN(UniqueFd socket, ConnectUnix(address.name));
  if (!PeerIsSameUser(socket)) {
    return FailedPrecondition("{} belongs to another user", peer);
  }
  return std::make_unique<ConnectedShmChannel>(std::move(socket));
}

}  // namespace tandem
