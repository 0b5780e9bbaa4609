#include "transfer/media/nccl/handshake.h"

#include <cstring>

#include "base/status.h"

namespace tandem {

static_assert(NcclSetup::kIdBytes == NCCL_UNIQUE_ID_BYTES);

NcclHandshake::NcclHandshake(NcclContext& context, SocketChannel& socket, ChannelSide side)
    : context_(context),
      socket_(socket),
      side_(side),
      deadline_(std::chrono::steady_clock::now() + context.options().init_timeout) {
  if (side_ == ChannelSide::kConnected) Say({.kind = NcclSetupKind::kHello});
}

NcclHandshake::~NcclHandshake() {
  if (connection_.communicator != nullptr) context_.reaper().End(std::move(connection_));
}

absl::StatusOr<bool> NcclHandshake::Advance() {
  const absl::StatusOr<bool> done = TryAdvance();
  if (done.ok()) return done;
  // It does no harm if this refusal is lost: the peer sees the end of the connection.
  Say({.kind = NcclSetupKind::kRefuse, .code = done.status().code()});
  Flush().IgnoreError();
  return done;
}

absl::StatusOr<bool> NcclHandshake::TryAdvance() {
  RETURN_IF_ERROR(ReadMessages());
  RETURN_IF_ERROR(PollCommunicator());
  RETURN_IF_ERROR(Flush());
  if (ready_ && peer_ready_ && outgoing_.empty()) return true;
  if (std::chrono::steady_clock::now() < deadline_) return false;
  return Unavailable("no NCCL communicator within {} ms: {}",
                     context_.options().init_timeout.count(),
                     epoch_ == 0 ? "the peer says nothing"
                     : ready_    ? "the peer has none yet"
                                 : "NCCL is still making it");
}

// Reads no further than the peer's last message of the handshake, because frames may follow it.
absl::Status NcclHandshake::ReadMessages() {
  while (!peer_ready_) {
    const iovec rest = {incoming_.data() + incoming_bytes_, incoming_.size() - incoming_bytes_};
    ASSIGN_OR_RETURN(const size_t count, socket_.Read({&rest, 1}));
    incoming_bytes_ += count;
    if (incoming_bytes_ < incoming_.size()) return absl::OkStatus();
    incoming_bytes_ = 0;
    const absl::StatusOr<NcclSetup> message = ParseNcclSetup(incoming_);
    if (!message.ok()) return FailedPrecondition("{}", std::string(message.status().message()));
    RETURN_IF_ERROR(Handle(*message));
  }
  return absl::OkStatus();
}

absl::Status NcclHandshake::Handle(const NcclSetup& message) {
  const bool accepted = side_ == ChannelSide::kAccepted;
  if (message.kind == NcclSetupKind::kRefuse) return Refusal(message);
  if (accepted && message.kind == NcclSetupKind::kHello && epoch_ == 0) return OnHello(message);
  if (!accepted && message.kind == NcclSetupKind::kId && epoch_ == 0) return OnId(message);
  if (message.kind == NcclSetupKind::kReady && epoch_ != 0) return OnReady(message);
  return FailedPrecondition("the peer sent an NCCL setup of kind {} when none was due",
                            static_cast<int>(message.kind));
}

absl::Status NcclHandshake::OnHello(const NcclSetup& hello) {
  RETURN_IF_ERROR(CheckVersion(hello));
  MemorySlot slot = context_.receive_slots().Take();
  if (!slot) {
    return ResourceExhausted("all {} slots for what NCCL receives are taken",
                             context_.receive_slots().num_slots());
  }
  connection_.slots.push_back(std::move(slot));
  ASSIGN_OR_RETURN(const ncclUniqueId id, context_.NewId(epoch_));
  NcclSetup message = {
      .kind = NcclSetupKind::kId, .epoch = epoch_, .slot_bytes = context_.slot_bytes()};
  std::memcpy(message.id.data(), id.internal, message.id.size());
  Say(message);
  return BeginCommunicator(id);
}

absl::Status NcclHandshake::OnId(const NcclSetup& message) {
  RETURN_IF_ERROR(CheckVersion(message));
  if (message.slot_bytes < context_.slot_bytes()) {
    return FailedPrecondition(
        "the peer receives NCCL operations of {} bytes, this worker sends up to {}: give both the "
        "same size",
        message.slot_bytes, context_.slot_bytes());
  }
  epoch_ = message.epoch;
  ncclUniqueId id;
  std::memcpy(id.internal, message.id.data(), message.id.size());
  return BeginCommunicator(id);
}

absl::Status NcclHandshake::OnReady(const NcclSetup& message) {
  if (message.epoch != epoch_) {
    return FailedPrecondition("the peer has the NCCL communicator of epoch {}, not {}",
                              message.epoch, epoch_);
  }
  peer_ready_ = true;
  return absl::OkStatus();
}

absl::Status NcclHandshake::Refusal(const NcclSetup& message) const {
  RETURN_IF_ERROR(CheckVersion(message));
  if (message.code == absl::StatusCode::kResourceExhausted) {
    return Unavailable("the peer takes no further NCCL connection");
  }
  return MakeStatus(message.code == absl::StatusCode::kFailedPrecondition
                        ? absl::StatusCode::kFailedPrecondition
                        : absl::StatusCode::kUnavailable,
                    "the peer gave up its side of an NCCL connection with status code {}: its log "
                    "says why",
                    static_cast<int>(message.code));
}

absl::Status NcclHandshake::CheckVersion(const NcclSetup& message) const {
  const uint32_t own = context_.nccl()->version;
  if (message.nccl_version == own) return absl::OkStatus();
  return FailedPrecondition("the peer has NCCL {}, this worker {}: install the same on both",
                            NcclVersionText(message.nccl_version), NcclVersionText(own));
}

absl::Status NcclHandshake::BeginCommunicator(const ncclUniqueId& id) {
  // Making a stream makes its device the current one of this thread, and the communicator uses the
  // current device.
  ASSIGN_OR_RETURN(connection_.stream, context_.device().NewStream());
  const int rank = side_ == ChannelSide::kAccepted ? 0 : 1;
  ASSIGN_OR_RETURN(connection_.communicator,
                   NcclCommunicator::Begin(context_.nccl(), id, rank,
                                           fmt::format("tandem-r{}-e{}", rank, epoch_)));
  return absl::OkStatus();
}

absl::Status NcclHandshake::PollCommunicator() {
  if (connection_.communicator == nullptr || ready_) return absl::OkStatus();
  ASSIGN_OR_RETURN(ready_, connection_.communicator->Poll());
  if (!ready_) return absl::OkStatus();
  if (side_ == ChannelSide::kAccepted) context_.IdWasUsed();
  Say({.kind = NcclSetupKind::kReady, .epoch = epoch_});
  return absl::OkStatus();
}

void NcclHandshake::Say(const NcclSetup& message) {
  NcclSetup complete = message;
  complete.nccl_version = context_.nccl()->version;
  const auto bytes = EncodeNcclSetup(complete);
  outgoing_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::Status NcclHandshake::Flush() {
  while (!outgoing_.empty()) {
    const iovec part = {outgoing_.data(), outgoing_.size()};
    ASSIGN_OR_RETURN(const size_t count, socket_.Write({&part, 1}));
    if (count == 0) break;
    outgoing_.erase(0, count);
  }
  return absl::OkStatus();
}

}  // namespace tandem
