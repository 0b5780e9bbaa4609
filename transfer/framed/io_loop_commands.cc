// What other threads ask of the loop (io_loop.h): the side of the streams that are sent.
#include <unistd.h>

#include <utility>

#include "base/status.h"
#include "transfer/framed/io_loop.h"

namespace tandem {
namespace {

// Of a stream that is aborted: a peer that was silent for such a part of the time that it has to
// answer is taken for the reason.
constexpr int kSilentAtAbort = 5;

}  // namespace

void IoLoop::ClearWake() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t cleared = read(sockets_.wake.get(), &count, sizeof(count));
}

std::vector<LoopCommand> IoLoop::TakeCommands() {
  absl::MutexLock lock(&mutex_);
  asleep_ = false;
  return std::exchange(commands_, {});
}

void IoLoop::ExecuteCommands() {
  for (LoopCommand& command : TakeCommands()) {
    std::visit([this](auto& typed) { Execute(typed); }, command);
  }
}

void IoLoop::Execute(OpenCommand& command) {
  if (streams_.Find(command.key) != command.serial) return;  // aborted meanwhile
  const absl::StatusOr<Peer*> peer = ConnectTo(command.peer);
  if (!peer.ok()) {
    ended_.push_back({command.key, command.serial,
                      Annotate(peer.status(), fmt::format("connection to {}", command.peer))});
    return;
  }
  (*peer)->group->AddStream(command.key, command.serial, command.renew_every,
                            std::chrono::steady_clock::now());
  routes_[command.key] = {.serial = command.serial, .peer = *peer};
}

void IoLoop::Execute(PostCommand& command) {
  Peer* const peer = PeerOf(command.key, command.serial);
  if (peer == nullptr) return;
  peer->group->Post(command.key, command.extents);
}

void IoLoop::Execute(FinishCommand& command) {
  Peer* const peer = PeerOf(command.key, command.serial);
  if (peer != nullptr) peer->group->Finish(command.key, command.frames);
}

IoLoop::Peer* IoLoop::PeerOf(StreamKey key, uint64_t serial) const {
  const auto place = routes_.find(key);
  return place != routes_.end() && place->second.serial == serial ? place->second.peer : nullptr;
}

void IoLoop::Execute(AbortCommand& command) {
  Drop(command.key, command.serial);
  command.done->Notify();
}

absl::StatusOr<IoLoop::Peer*> IoLoop::ConnectTo(const std::string& name) {
  if (const auto place = peers_.find(name); place != peers_.end()) return place->second.get();
  std::vector<std::unique_ptr<ByteChannel>> channels;
  for (int32_t i = 0; i < options_.connections; ++i) {
    ASSIGN_OR_RETURN(channels.emplace_back(), medium_.Connect(name));
  }
  auto& peer = peers_[name];
  peer = std::make_unique<Peer>();
  peer->group = std::make_unique<OutboundGroup>(
      OutboundGroup::Options{.peer = name,
                             .id = uint64_t{random_()} << 32 | random_(),
                             .connections = static_cast<uint32_t>(options_.connections),
                             .max_bytes_per_second = options_.max_bytes_per_second},
      links_.Find(name), [this](StreamKey key, uint64_t serial, const absl::Status& status) {
        StreamOver(key, serial, status);
      });
  for (uint32_t index = 0; index < channels.size(); ++index) {
    const uint64_t id = next_id_++;
    auto connection = std::make_unique<OutboundConnection>(
        *peer->group, index, std::move(channels[index]), payloads_.staged_out, id, counters_,
        Timeouts{.connect = options_.connect_timeout, .stall = options_.stall_timeout});
    peer->ids.push_back(id);
    peer->connections.push_back(connection.get());
    Slot& slot = slots_[id];
    slot.connection = std::move(connection);
    slot.peer = peer.get();
    UpdateInterest(id, slot);
  }
  AdvanceAll(*peer);
  return peer.get();
}

// No payload of it is read any more before its end is told.
void IoLoop::StreamOver(StreamKey key, uint64_t serial, const absl::Status& status) {
  const auto route = routes_.extract(key);
  for (OutboundConnection* connection : route.mapped().peer->connections) {
    connection->DropStream(key);
  }
  ended_.push_back({key, serial, status});
}

void IoLoop::Drop(StreamKey key, uint64_t serial) {
  absl::Status status = Cancelled("stream {} was aborted", key.stream);
  if (Peer* const peer = PeerOf(key, serial); peer != nullptr) {
    if (absl::Status silent = SilenceOf(*peer->group); !silent.ok()) status = std::move(silent);
    peer->group->Drop(key);
    for (OutboundConnection* connection : peer->connections) connection->DropStream(key);
    routes_.erase(key);
  }
  streams_.End(key, serial, status);
}

// Whoever waits for a stream may give it up long before this side gives up the connection.
absl::Status IoLoop::SilenceOf(OutboundGroup& group) const {
  const TimePoint now = std::chrono::steady_clock::now();
  if (group.silence(now) <= options_.answer_timeout / kSilentAtAbort) return absl::OkStatus();
  group.link().StreamFailed();
  return Annotate(group.NoAnswer(now), fmt::format("connection to {}", group.peer()));
}

// Calls back once the event that ended the streams has been dealt with, so that a callback may open
// and abort streams.
void IoLoop::EndStreams() {
  while (!ended_.empty()) {
    for (const EndedStream& stream : std::exchange(ended_, {})) {
      streams_.End(stream.key, stream.serial, stream.status);
    }
  }
}

}  // namespace tandem
