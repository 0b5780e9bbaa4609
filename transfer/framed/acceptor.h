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

// The size of the buffer, set aside at the start, for bytes that connections read before these have
// a place.
inline constexpr size_t kReadAheadBytes = 256 << 10;

// Accepts the connections that peers make. A peer is unauthenticated until its hello has come: such
// connections are a bounded share of all, and the oldest gives way to a new one.
// Thread: the loop's.
class Acceptor {
 public:
  // All arguments outlive the acceptor.
  Acceptor(const FramedOptions& options, Medium& medium, FrameReceiver& receiver, PayloadPath& path,
           ConnectionTable& table, TransportCounters& counters);

  // Accepts the connections that wait; called when the listener has an event.
  void Accept();
  // Whether the connection came from a peer that has not said hello.
  bool IsUnauthenticated(uint64_t id) const { return unauthenticated_.contains(id); }
  void CloseUnauthenticated(uint64_t id, const absl::Status& status);
  // The time at which accepting goes on after the medium had no room; kNoDeadline while it is not
  // paused.
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
