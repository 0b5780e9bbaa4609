#include "transfer/media/nccl/side_channel.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

// The most operations that a connection has under way: one moves while the next is copied.
constexpr size_t kMaxSendsUnderWay = 2;

std::span<std::byte> SlotOf(const NcclConnection& connection) {
  return connection.slots.empty() ? std::span<std::byte>() : connection.slots.front().bytes();
}

}  // namespace

NcclSideChannel::NcclSideChannel(NcclContext& context, NcclWatch& watch, NcclConnection connection)
    : context_(context),
      watch_(watch),
      receives_(!SlotOf(connection).empty()),
      payloads_(SlotOf(connection)),
      operations_(std::move(connection), context.options().operation_grace,
                  context.options().init_timeout) {
  UpdateWatch();
}

NcclSideChannel::~NcclSideChannel() { context_.reaper().End(operations_.TakeConnection()); }

absl::Status NcclSideChannel::Advance() {
  if (!receiving_ && operations_.empty() && !lacks_slot_) return operations_.failure();
  const bool peer_gone = watch_.TakeEvents();
  operations_.Advance();
  if (peer_gone && receiving_ && !operations_.empty()) {
    operations_.Fail(Unavailable("the peer closed the connection in the middle of an operation"));
  }
  lacks_slot_ = lacks_slot_ && context_.send_slots().num_free() == 0;
  UpdateWatch();
  return operations_.failure();
}

// Whether the announced operation is still on its way. No descriptor reports that it has come, so
// the timer makes the transport ask here until then.
bool NcclSideChannel::arriving() {
  if (!receiving_) return false;
  Advance().IgnoreError();  // Read reports the error
  receiving_ = !operations_.empty() && operations_.failure().ok();
  UpdateWatch();
  return receiving_;
}

// While an operation arrives, input of the socket is not watched, because the frames that follow
// the announcement have to wait for it.
void NcclSideChannel::UpdateWatch() {
  watch_.WatchSocket(/*input=*/!receiving_, /*output=*/socket_is_full_);
  watch_.Tick(receiving_ || (operations_.failure().ok() && (!operations_.empty() || lacks_slot_)));
}

void NcclSideChannel::SocketIsFull(bool full) {
  socket_is_full_ = full;
  UpdateWatch();
}

SideChannel::Room NcclSideChannel::room(uint64_t /*in_flight*/) {
  if (receives_ || operations_.size() >= kMaxSendsUnderWay) return {};
  lacks_slot_ = context_.send_slots().num_free() == 0;
  UpdateWatch();
  if (lacks_slot_) return {};
  return {.payloads = ExtentStream::kMaxExtents, .bytes = context_.options().chunk_bytes};
}

absl::StatusOr<uint32_t> NcclSideChannel::Offer(std::span<OfferedPayload> payloads) {
  TANDEM_CHECK(payloads.size() <= ExtentStream::kMaxExtents,
               "more payloads than there is room for");
  MemorySlot slot = context_.send_slots().Take();
  TANDEM_CHECK(slot, "payloads offered without room");
  std::array<ExtentCopy, ExtentStream::kMaxExtents> copies;
  size_t end = 0;
  for (size_t i = 0; i < payloads.size(); ++i) {
    const size_t size = payloads[i].bytes.size();
    TANDEM_CHECK(size <= slot.bytes().size() - end, "more bytes than there is room for");
    copies[i] = {.dst = slot.bytes().subspan(end, size), .src = payloads[i].bytes};
    payloads[i].handle = NcclHandleOf(offered_, end);
    end = NcclContext::Align(end + size);
  }
  ASSIGN_OR_RETURN(const std::span<const uint64_t> hashes,
                   context_.copy_stream().CopyAll(std::span(copies).first(payloads.size())));
  for (size_t i = 0; i < payloads.size(); ++i) payloads[i].hash = hashes[i];
  ++offered_;
  operations_.Send(std::move(slot), end);
  UpdateWatch();
  RETURN_IF_ERROR(operations_.failure());
  return static_cast<uint32_t>(end);
}

absl::Status NcclSideChannel::Expect(uint32_t bytes) {
  TANDEM_CHECK(!receiving_, "an operation announced while another arrives");
  ASSIGN_OR_RETURN(const std::span<std::byte> announced, payloads_.Expect(bytes));
  receiving_ = true;
  operations_.Receive(announced);
  return Advance();
}

absl::StatusOr<std::span<const std::byte>> NcclSideChannel::Find(uint64_t handle,
                                                                 size_t bytes) const {
  if (receiving_) return InvalidArgument("a payload that is still on its way");
  return payloads_.Find(handle, bytes);
}

}  // namespace tandem
