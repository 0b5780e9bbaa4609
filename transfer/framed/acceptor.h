#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "transfer/framed/connection_table.h"
#include "transfer/framed/framed_options.h"
#include "transfer/framed/inbound.h"
#include "transfer/framed/payload_path.h"
#include "transfer/media/medium.h"

namespace tandem {

// Set aside at the start for what a connection reads before it has a place.
inline constexpr size_t kReadAheadBytes = 256 << 10;

// Accepts the connections that peers make. A peer is unauthenticated until its hello has come: such
// connections are a bounded share of all, and the oldest gives way to a new one.
// Thread: the loop's.
class Acceptor {
 public:
  // Everything named outlives this.
  Acceptor(const FramedOptions& options, Medium& medium, FrameReceiver& receiver, PayloadPath& path,
           ConnectionTable& table, TransportCounters& counters);

  // The listener has an event.
  void Accept();
  // Whether the connection came from a peer that has not said hello.
  bool IsUnauthenticated(uint64_t id) const { return unauthenticated_.contains(id); }
  void CloseUnauthenticated(uint64_t id, const absl::Status& status);
  // After a medium had no room, accepting goes on at this time.
  TimePoint accept_again() const { return accept_again_; }
  void ResumeIfDue(TimePoint now);

 private:
  void Add(std::unique_ptr<ByteChannel> channel);
  bool MakeRoomForOneMore();
  void CountRefused(std::atomic<uint64_t>& of_the_kind, absl::string_view reason);
  void Pause(const absl::Status& status);

  const FramedOptions& options_;
  Medium& medium_;
  FrameReceiver& receiver_;
  PayloadPath& path_;
  ConnectionTable& table_;
  TransportCounters& counters_;
  std::vector<std::byte> read_ahead_;
  std::set<uint64_t> unauthenticated_;  // ids rise, so the oldest comes first
  int num_connections_ = 0;
  std::atomic<uint64_t> refused_for_room_{0};
  TimePoint accept_again_ = kNoDeadline;
};

}  // namespace tandem
