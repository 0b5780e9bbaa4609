// What other threads ask of the loop (io_loop.h): the side of the streams that are sent.
#include <unistd.h>

#include <utility>

#include "base/status.h"
#include "transfer/framed/io_loop.h"

namespace tandem {

std::vector<LoopCommand> IoLoop::TakeCommands() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(commands_, {});
}

void IoLoop::ExecuteCommands() {
  uint64_t count = 0;
  // Cleared before the commands are taken: one that comes later wakes the loop again.
  [[maybe_unused]] const ssize_t cleared = read(sockets_.wake.get(), &count, sizeof(count));
  for (LoopCommand& command : TakeCommands()) {
    std::visit([this](auto& typed) { Execute(typed); }, command);
  }
  AdvanceUnfinished();
}

void IoLoop::Execute(OpenCommand& command) {
  if (streams_.Find(command.key) != command.serial) return;  // aborted meanwhile
  const absl::StatusOr<Peer*> peer = ConnectTo(command.peer);
  if (!peer.ok()) {
    ended_.push_back({command.key, command.serial,
                      Annotate(peer.status(), fmt::format("connection to {}", command.peer))});
    return;
  }
  (*peer)->connection->AddStream(command.key, command.serial);
  routes_[command.key] = {command.serial, (*peer)->id, (*peer)->connection};
}

void IoLoop::Execute(FrameCommand& command) {
  const StreamKey key = KeyOf(command.frame.header);
  const auto place = routes_.find(key);
  if (place == routes_.end() || place->second.serial != command.serial) return;
  const Route& route = place->second;
  route.connection->Queue(key, command.frame);
  if (unfinished_.empty() || unfinished_.back() != route.id) unfinished_.push_back(route.id);
}

void IoLoop::Execute(AbortCommand& command) {
  Drop(command.key, command.serial);
  command.done->Notify();
}

absl::StatusOr<IoLoop::Peer*> IoLoop::ConnectTo(const std::string& name) {
  if (const auto place = peers_.find(name); place != peers_.end()) return &place->second;
  ASSIGN_OR_RETURN(std::unique_ptr<ByteChannel> channel, medium_.Connect(name));
  auto connection = std::make_unique<OutboundConnection>(
      OutboundConnection::Options{.peer = name,
                                  .connect_timeout = options_.connect_timeout,
                                  .stall_timeout = options_.stall_timeout},
      std::move(channel), streams_, counters_,
      [this](StreamKey key, uint64_t serial, const absl::Status& status) {
        routes_.erase(key);
        ended_.push_back({key, serial, status});
      });
  Peer& peer = peers_[name];
  peer = {.id = next_id_++, .connection = connection.get()};
  Slot& slot = slots_[peer.id];
  slot.connection = std::move(connection);
  UpdateInterest(peer.id, slot);
  unfinished_.push_back(peer.id);
  return &peer;
}

void IoLoop::Drop(StreamKey key, uint64_t serial) {
  const auto place = routes_.find(key);
  if (place != routes_.end() && place->second.serial == serial) {
    place->second.connection->DropStream(key);
    routes_.erase(place);
  }
  streams_.End(key, serial, Cancelled("stream {} was aborted", key.stream));
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
