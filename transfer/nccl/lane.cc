#include "transfer/nccl/lane.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

// One is on its way while the next is copied.
constexpr size_t kMaxSendsUnderWay = 2;

size_t RoundUp(size_t bytes) {
  constexpr size_t kUnit = NcclContext::kPlaceBytes;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

std::span<std::byte> SlotOf(const NcclConnection& connection) {
  return connection.slots.empty() ? std::span<std::byte>() : connection.slots.front().bytes();
}

}  // namespace

NcclLane::State::State(NcclContext& context_of_all, NcclWatch& watch_of_channel,
                       NcclConnection connection)
    : context(context_of_all),
      watch(watch_of_channel),
      operations(std::move(connection), context.options().operation_grace,
                 context.options().init_timeout) {}

absl::Status NcclLane::State::Advance() {
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

// Nowhere else is it noticed that what was announced has come: who waits for that asks here, and is
// woken until then.
bool NcclLane::State::Arriving() {
  if (!receiving) return false;
  Advance().IgnoreError();  // Read says what went wrong
  receiving = !operations.empty() && operations.failure().ok();
  UpdateWatch();
  return receiving;
}

bool NcclLane::State::HasRoom() {
  if (operations.size() >= kMaxSendsUnderWay) return false;
  lacks_slot = !context.send_slots().has_free();
  UpdateWatch();
  return !lacks_slot;
}

// While an operation arrives, what follows it on the socket is not looked at.
void NcclLane::State::UpdateWatch() {
  watch.WatchSocket(/*input=*/!receiving, /*output=*/socket_is_full);
  watch.Tick(receiving || (operations.failure().ok() && (!operations.empty() || lacks_slot)));
}

NcclLane::NcclLane(NcclContext& context, NcclWatch& watch, NcclConnection connection)
    : receives_(!SlotOf(connection).empty()),
      places_(SlotOf(connection)),
      state_(std::make_unique<State>(context, watch, std::move(connection))) {
  state_->UpdateWatch();
}

NcclLane::~NcclLane() { state_->context.reaper().End(state_->operations.TakeConnection()); }

void NcclLane::SocketIsFull(bool full) {
  state_->socket_is_full = full;
  state_->UpdateWatch();
}

PayloadLane::Room NcclLane::room() const {
  if (receives_ || !state_->HasRoom()) return {};
  return {.payloads = NcclContext::kMaxPayloads, .bytes = state_->context.options().chunk_bytes};
}

absl::StatusOr<uint32_t> NcclLane::Offer(std::span<LanePayload> payloads) {
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
    payloads[i].place = NcclPlaceOf(offered_, end);
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

absl::Status NcclLane::Expect(uint32_t bytes) {
  TANDEM_CHECK(!state_->receiving, "an operation announced while another arrives");
  ASSIGN_OR_RETURN(const std::span<std::byte> place, places_.Expect(bytes));
  state_->receiving = true;
  state_->operations.Receive(place);
  return state_->Advance();
}

absl::StatusOr<std::span<const std::byte>> NcclLane::Find(uint64_t place, size_t bytes) const {
  if (state_->receiving) return InvalidArgument("a payload that is still on its way");
  return places_.Find(place, bytes);
}

}  // namespace tandem
