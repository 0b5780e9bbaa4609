// What other threads ask of the loop (io_loop.h): the side of the streams that are sent.
#include <unistd.h>

#include <utility>

#include "base/status.h"
#include "transfer/tcp/io_loop.h"

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
  for (uint64_t id : std::exchange(flushable_, {})) {
    const auto place = slots_.find(id);
    if (place == slots_.end()) continue;
    auto& connection = static_cast<OutboundConnection&>(*place->second.connection);
    if (absl::Status status = connection.Flush(); status.ok()) {
      UpdateInterest(id, place->second);
    } else {
      Close(id, status);
    }
  }
  EndStreams();
}

void IoLoop::Execute(OpenCommand& command) {
  if (streams_.Find(command.key) != command.serial) return;  // aborted meanwhile
  Peer& peer = ConnectTo(command.peer);
  peer.connection->AddStream(command.key, command.serial);
  routes_[command.key] = {command.serial, peer.id, peer.connection};
}

void IoLoop::Execute(FrameCommand& command) {
  const StreamKey key = KeyOf(command.frame.header);
  const auto place = routes_.find(key);
  if (place == routes_.end() || place->second.serial != command.serial) return;
  const Route& route = place->second;
  route.connection->Queue(key, command.frame);
  if (flushable_.empty() || flushable_.back() != route.id) flushable_.push_back(route.id);
}

void IoLoop::Execute(AbortCommand& command) {
  Drop(command.key, command.serial);
  command.done->Notify();
}

void IoLoop::Execute(ResolvedCommand& command) {
  const auto place = slots_.find(command.connection);
  if (place == slots_.end()) return;  // timed out meanwhile
  auto& connection = static_cast<OutboundConnection&>(*place->second.connection);
  absl::Status status = command.addresses.status();
  if (status.ok()) status = connection.Connect(*std::move(command.addresses));
  if (status.ok()) {
    UpdateInterest(command.connection, place->second);
  } else {
    Close(command.connection, status);
  }
}

IoLoop::Peer& IoLoop::ConnectTo(const std::string& name) {
  const auto [place, added] = peers_.try_emplace(name);
  Peer& peer = place->second;
  if (!added) return peer;
  auto connection = std::make_unique<OutboundConnection>(
      OutboundConnection::Options{.peer = name,
                                  .connect_timeout = options_.connect_timeout,
                                  .stall_timeout = options_.stall_timeout},
      streams_, counters_, [this](StreamKey key, uint64_t serial, const absl::Status& status) {
        routes_.erase(key);
        ended_.push_back({key, serial, status});
      });
  peer = {.id = next_id_++, .connection = connection.get()};
  slots_[peer.id].connection = std::move(connection);
  StartConnecting(peer.id, name);
  return peer;
}

// The answer comes as a command in either case: whoever opens the stream finds the connection.
void IoLoop::StartConnecting(uint64_t id, const std::string& name) {
  auto place = ParseHostPort(name);
  if (!place.ok()) return Post(ResolvedCommand{.connection = id, .addresses = place.status()});
  auto addresses = Resolve(*place, NameLookup::kNumericOnly);
  if (addresses.ok()) {
    return Post(ResolvedCommand{.connection = id, .addresses = std::move(addresses)});
  }
  if (resolver_.Resolve(id, *std::move(place))) return;
  Post(ResolvedCommand{.connection = id,
                       .addresses = Unavailable("too many host names wait to be resolved")});
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
