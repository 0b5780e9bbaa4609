#include "transfer/media/nccl/side_channel.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

// One operation moves while the next is copied.
constexpr size_t kMaxSendsUnderWay = 2;

size_t RoundUp(size_t bytes) {
  constexpr size_t kUnit = NcclContext::kPayloadAlignment;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

std::span<std::byte> SlotOf(const NcclConnection& connection) {
  return connection.slots.empty() ? std::span<std::byte>() : connection.slots.front().bytes();
}

}  // namespace

NcclSideChannel::State::State(NcclContext& context_of_all, NcclWatch& watch_of_channel,
                              NcclConnection connection)
    : context(context_of_all),
      watch(watch_of_channel),
      operations(std::move(connection), context.options().operation_grace,
                 context.options().init_timeout) {}

absl::Status NcclSideChannel::State::Advance() {
  if (!receiving && operations.empty() && !lacks_slot) return operations.failure();
  const bool peer_gone = watch.TakeEvents();
  operations.Advance();
  if (peer_gone && receiving && !operations.empty()) {
    operations.Fail(Unavailable("the peer closed the connection in the middle of an operation"));
  }
  lacks_slot = lacks_slot && !context.send_slots().has_free();
  UpdateWatch();
  return operations.failure();
}

// The transport asks here whether the announced operation has come; nothing else notices that. The
// timer wakes it until then.
bool NcclSideChannel::State::Arriving() {
  if (!receiving) return false;
  Advance().IgnoreError();  // Read reports the error
  receiving = !operations.empty() && operations.failure().ok();
  UpdateWatch();
  return receiving;
}

bool NcclSideChannel::State::HasRoom() {
  if (operations.size() >= kMaxSendsUnderWay) return false;
  lacks_slot = !context.send_slots().has_free();
  UpdateWatch();
  return !lacks_slot;
}

// While an operation arrives, input of the socket is not watched, because the frames that follow the
// announcement have to wait for it.
void NcclSideChannel::State::UpdateWatch() {
  watch.WatchSocket(/*input=*/!receiving, /*output=*/socket_is_full);
  watch.Tick(receiving || (operations.failure().ok() && (!operations.empty() || lacks_slot)));
}

NcclSideChannel::NcclSideChannel(NcclContext& context, NcclWatch& watch, NcclConnection connection)
    : receives_(!SlotOf(connection).empty()),
      payloads_(SlotOf(connection)),
      state_(std::make_unique<State>(context, watch, std::move(connection))) {
  state_->UpdateWatch();
}

NcclSideChannel::~NcclSideChannel() {
  state_->context.reaper().End(state_->operations.TakeConnection());
}

void NcclSideChannel::SocketIsFull(bool full) {
  state_->socket_is_full = full;
  state_->UpdateWatch();
}

SideChannel::Room NcclSideChannel::room(uint64_t /*in_flight*/) {
  if (receives_ || !state_->HasRoom()) return {};
  return {.payloads = NcclContext::kMaxPayloads, .bytes = state_->context.options().chunk_bytes};
}

absl::StatusOr<uint32_t> NcclSideChannel::Offer(std::span<OfferedPayload> payloads) {
  NcclContext& context = state_->context;
  TANDEM_CHECK(payloads.size() <= NcclContext::kMaxPayloads,
               "more payloads than there is room for");
  std::optional<NcclSlot> slot = context.send_slots().Take();
  TANDEM_CHECK(slot.has_value(), "payloads offered without room");
  std::array<ExtentCopy, NcclContext::kMaxPayloads> copies;
  size_t end = 0;
  for (size_t i = 0; i < payloads.size(); ++i) {
    const size_t size = payloads[i].bytes.size();
    TANDEM_CHECK(size <= slot->bytes().size() - end, "more bytes than there is room for");
    copies[i] = {.dst = slot->bytes().subspan(end, size), .src = payloads[i].bytes};
    payloads[i].handle = NcclHandleOf(offered_, end);
    end = RoundUp(end + size);
  }
  ASSIGN_OR_RETURN(const std::span<const uint64_t> hashes,
                   context.copy_stream().CopyAll(std::span(copies).first(payloads.size())));
  for (size_t i = 0; i < payloads.size(); ++i) payloads[i].hash = hashes[i];
  ++offered_;
  state_->operations.Send(*std::move(slot), end);
  state_->UpdateWatch();
  RETURN_IF_ERROR(state_->operations.failure());
  return static_cast<uint32_t>(end);
}

absl::Status NcclSideChannel::Expect(uint32_t bytes) {
  TANDEM_CHECK(!state_->receiving, "an operation announced while another arrives");
  ASSIGN_OR_RETURN(const std::span<std::byte> announced, payloads_.Expect(bytes));
  state_->receiving = true;
  state_->operations.Receive(announced);
  return state_->Advance();
}

absl::StatusOr<std::span<const std::byte>> NcclSideChannel::Find(uint64_t handle,
                                                                 size_t bytes) const {
  if (state_->receiving) return InvalidArgument("a payload that is still on its way");
  return payloads_.Find(handle, bytes);
}

}  // namespace tandem
