#include "transfer/media/shm/shm_channel.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "transfer/media/unix_socket.h"

namespace tandem {
namespace {

std::string_view Text(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

absl::Status Refusal(absl::StatusCode code) {
  if (code == absl::StatusCode::kResourceExhausted) {
    return Unavailable("the peer has no shared memory left for another connection");
  }
  return FailedPrecondition("the peer refused with status code {}", static_cast<int>(code));
}

// A quarter of the area is copied at once, so that the peer works on one piece while this side works
// on the next.
constexpr size_t kPiecesPerArea = 4;

absl::StatusOr<size_t> PieceOf(const SlotLayout& layout, size_t max_payload_bytes) {
  if (max_payload_bytes <= layout.area_bytes / 2) {
    return std::max(max_payload_bytes, static_cast<size_t>(layout.area_bytes / kPiecesPerArea));
  }
  return FailedPrecondition(
      "the peer takes payloads of at most {} bytes through shared memory, here are some of {}: "
      "give it a larger --kv-buffer-bytes",
      layout.area_bytes / 2, max_payload_bytes);
}

}  // namespace

AcceptedShmChannel::AcceptedShmChannel(UniqueFd socket, UniqueFd watch, Doorbell doorbell,
                                       CoreChoice& core_choice, SlotPool& slots, size_t slot)
    : socket_(std::move(socket)),
      watch_(std::move(watch)),
      slots_(slots),
      slot_(slot),
      stream_(socket_.get(), std::move(doorbell), &core_choice,
              RingReader(slots.parts(slot).control->forward, slots.parts(slot).forward),
              RingWriter(slots.parts(slot).control->back, slots.parts(slot).back)),
      side_channel_(AreaReader(slots.parts(slot).control->area, slots.parts(slot).area), stream_) {}

AcceptedShmChannel::~AcceptedShmChannel() { slots_.Drain(slot_, std::move(socket_)); }

absl::StatusOr<bool> ConnectedShmChannel::Establish() {
  if (stream_) return true;
  ASSIGN_OR_RETURN(Received received,
                   ReceiveWithDescriptors(socket_.get(), std::span(setup_).subspan(setup_count_)));
  if (!received.descriptors.empty()) descriptors_ = std::move(received.descriptors);
  setup_count_ += received.count;
  if (setup_count_ < setup_.size()) return false;
  RETURN_IF_ERROR(MapSlot());
  return true;
}

absl::Status ConnectedShmChannel::MapSlot() {
  const auto setup = ParseShmSetup(setup_);
  if (!setup.ok()) return FailedPrecondition("{}", Text(setup.status()));
  if (setup->code != absl::StatusCode::kOk) return Refusal(setup->code);
  if (descriptors_.size() != kSlotDescriptors) {
    return FailedPrecondition("the peer sent {} descriptors with its shared memory: {} make a slot",
                              descriptors_.size(), kSlotDescriptors);
  }
  ASSIGN_OR_RETURN(const size_t piece_bytes, PieceOf(setup->layout, copier_.max_payload_bytes));
  ASSIGN_OR_RETURN(mapping_, MapPeerMemory(descriptors_[0], setup->layout.slot_bytes()));
  ASSIGN_OR_RETURN(registration_, device_.RegisterHost(mapping_.bytes()));
  Doorbell doorbell(std::move(descriptors_[2]), std::move(descriptors_[1]));
  descriptors_.clear();
  RETURN_IF_ERROR(doorbell.NeverBlock());
  RETURN_IF_ERROR(AddToWatch(watch_, doorbell.fd()));
  const SlotParts parts = PartsOf(setup->layout, mapping_.bytes());
  stream_.emplace(socket_.get(), std::move(doorbell), nullptr,
                  RingReader(parts.control->back, parts.back),
                  RingWriter(parts.control->forward, parts.forward));
  side_channel_.emplace(copier_, AreaWriter(parts.control->area, parts.area, piece_bytes),
                        *stream_);
  return absl::OkStatus();
}

absl::StatusOr<size_t> ConnectedShmChannel::Read(std::span<const iovec> parts) {
  TANDEM_CHECK(stream_.has_value(), "read before the connection was established");
  return stream_->Read(parts);
}

absl::StatusOr<size_t> ConnectedShmChannel::Write(std::span<const iovec> parts) {
  TANDEM_CHECK(stream_.has_value(), "written before the connection was established");
  return stream_->Write(parts);
}

}  // namespace tandem
