#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "transfer/framed/connection_table.h"
#include "transfer/framed/framed_options.h"
#include "transfer/framed/links.h"
#include "transfer/framed/outbound.h"
#include "transfer/framed/payload_path.h"
#include "transfer/framed/peer_streams.h"
#include "transfer/media/medium.h"

namespace tandem {

// The peers that this side sends to, each with its streams and one connection, which live and die
// together.
// Thread: the loop's.
class Peers {
 public:
  // All arguments outlive this object.
  Peers(const FramedOptions& options, Medium& medium, PayloadPath& path, ConnectionTable& table,
        OpenStreams& streams, Links& links, TransportCounters& counters);

  void Execute(StreamCommand& command);
  // Aborts the stream, as SendStream::Abort describes.
  void Abort(OutgoingStream& stream);
  // Calls back for the streams that have ended since the last time. Called between events, so that
  // a callback may open and abort streams.
  void EndStreams();

  // Runs the timers that are due, and asks for a turn for each connection with something new to
  // send.
  void RunTimers(TimePoint now);
  // The time at which RunTimers or CloseUnanswering have something to do; not after `now` if they
  // have it at once.
  TimePoint next_timer(TimePoint now) const;
  // Closes the connections to peers that have owed an answer for too long.
  void CloseUnanswering(TimePoint now);

 private:
  struct Peer {
    std::unique_ptr<PeerStreams> streams;
    uint64_t id = 0;
    OutboundConnection* connection = nullptr;
  };

  void OnClosed(const std::string& name, const absl::Status& status);
  void Open(const OpenCommand& command);
  absl::StatusOr<Peer*> ConnectTo(const std::string& name);
  TimePoint AnswerDeadline(const Peer& peer) const;
  absl::Status StatusOfAborted(const OutgoingStream& stream);

  struct EndedStream {
    std::shared_ptr<OutgoingStream> stream;
    absl::Status status;
  };

  const FramedOptions& options_;
  Medium& medium_;
  PayloadPath& path_;
  ConnectionTable& table_;
  OpenStreams& streams_;
  Links& links_;
  TransportCounters& counters_;
  absl::flat_hash_map<std::string, Peer> peers_;
  std::vector<EndedStream> ended_;
  std::random_device random_;
};

}  // namespace tandem
