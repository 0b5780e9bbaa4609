#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/unique_fd.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/framed/inbound.h"
#include "transfer/framed/links.h"
#include "transfer/framed/outbound.h"
#include "transfer/framed/outbound_staging.h"
#include "transfer/medium.h"
#include "transfer/send_streams.h"

namespace tandem {

// What other threads ask of the loop. `serial` tells whether the stream is still the one that was
// meant (SendStreams).
struct OpenCommand {
  StreamKey key;
  uint64_t serial = 0;
  std::string peer;
  Duration renew_every{};
};
struct PostCommand {
  StreamKey key;
  uint64_t serial = 0;
  std::vector<PostedExtent> extents;
};
struct FinishCommand {
  StreamKey key;
  uint64_t serial = 0;
  uint64_t frames = 0;
};
struct AbortCommand {
  StreamKey key;
  uint64_t serial = 0;
  absl::Notification* done = nullptr;  // notified once no payload of the stream is read any more
};
using LoopCommand = std::variant<OpenCommand, PostCommand, FinishCommand, AbortCommand>;

// What the loop waits on besides its connections and its medium.
struct LoopSockets {
  UniqueFd epoll;
  UniqueFd wake;  // an eventfd

  // UNAVAILABLE when the process has no descriptor left.
  static absl::StatusOr<LoopSockets> Open();
};

// For payloads that do not go straight between their places and the channels. Null: there are none
// such.
struct PayloadWays {
  OutboundStaging* staged_out = nullptr;  // payloads lie in the memory of a device
  LandingWays in;
};

// The thread that does all I/O of a framed transport: it owns the connections and everything in
// them; other threads reach it through Post alone. Asleep in epoll_wait, but for two
// turns a second, when there is nothing to do.
class IoLoop {
 public:
  // Set aside at the start for what a connection reads before it has a place.
  static constexpr size_t kReadAheadBytes = 256 << 10;

  // Starts the thread. Everything named outlives the loop.
  IoLoop(const FramedOptions& options, LoopSockets sockets, Medium& medium, FrameReceiver& receiver,
         const PayloadWays& payloads, SendStreams& streams, Links& links,
         TransportCounters& counters);
  // Closes the connections, ends the streams with UNAVAILABLE, joins.
  ~IoLoop();

  // Thread-safe; never blocks.
  void Post(LoopCommand command);
  // What AbortStream promises. Thread-safe; waits for the loop unless called from it.
  void Abort(StreamKey key, uint64_t serial);

 private:
  static constexpr uint64_t kWakeId = 0;
  static constexpr uint64_t kListenerId = 1;
  static constexpr uint64_t kFirstConnectionId = 2;

  // A peer that this side sends to, and its connections. They live and die together.
  struct Peer {
    std::unique_ptr<OutboundGroup> group;
    std::vector<uint64_t> ids;
    std::vector<OutboundConnection*> connections;  // by the same index
  };
  struct Slot {
    std::unique_ptr<Connection> connection;
    Peer* peer = nullptr;   // of an outbound one
    uint64_t group_id = 0;  // of an inbound one that said hello: in inbound_groups_
    int watched_fd = -1;
    uint32_t interest = 0;
  };
  struct Route {
    uint64_t serial = 0;
    Peer* peer = nullptr;
  };
  struct EndedStream {
    StreamKey key;
    uint64_t serial = 0;
    absl::Status status;
  };

  void Run();
  // False where commands wait. Whoever brings one afterwards wakes the loop.
  bool FallAsleep();
  bool Stopping();
  int WaitMilliseconds() const;
  void Watch(int fd, uint64_t id);
  void UpdateInterest(uint64_t id, Slot& slot);
  void Handle(uint64_t id);
  void Advance(uint64_t id);
  void AdvanceUnfinished();
  void AdvanceAll(const Peer& peer);
  void AdvanceThoseWithoutSlots();
  void RunTimers();
  void CloseOverdue();
  TimePoint AnswerDeadline(const OutboundGroup& group) const;
  void CloseUnanswering(TimePoint now);
  void Shutdown();

  // Closing one connection closes its group.
  void Close(uint64_t id, const absl::Status& status);
  void ClosePeer(Peer& peer, const absl::Status& status);
  void CloseInbound(uint64_t id, const absl::Status& status);
  void CloseSlot(uint64_t id, std::string_view peer, const absl::Status& status);

  void Accept();
  // Whether it came from a peer that has not said hello.
  bool IsSilent(uint64_t id) const;
  std::vector<uint64_t> Silent() const;  // those, the oldest first
  bool MakeRoomForOneMore();
  void CloseStranger(uint64_t id, const absl::Status& status);
  void CountStranger(const absl::Status& status);
  void CountRefusedForRoom();
  void PauseAccepting(const absl::Status& status);
  void ResumeAccepting();
  absl::StatusOr<InboundGroup*> JoinGroup(uint64_t id, const FrameHeader& hello);

  void ExecuteCommands();
  void Execute(OpenCommand& command);
  void Execute(PostCommand& command);
  void Execute(FinishCommand& command);
  void Execute(AbortCommand& command);
  // Null when it is not the stream that was meant any more.
  Peer* PeerOf(StreamKey key, uint64_t serial) const;
  absl::StatusOr<Peer*> ConnectTo(const std::string& name);
  void StreamOver(StreamKey key, uint64_t serial, const absl::Status& status);
  void Drop(StreamKey key, uint64_t serial);
  // UNAVAILABLE where the peer has owed an answer for long.
  absl::Status SilenceOf(OutboundGroup& group) const;
  void EndStreams();
  std::vector<LoopCommand> TakeCommands();
  void Wake() const;
  void ClearWake() const;

  const FramedOptions options_;
  const LoopSockets sockets_;
  Medium& medium_;
  FrameReceiver& receiver_;
  const PayloadWays payloads_;
  SendStreams& streams_;
  Links& links_;
  TransportCounters& counters_;

  absl::Mutex mutex_;
  std::vector<LoopCommand> commands_ ABSL_GUARDED_BY(mutex_);
  bool asleep_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's own.
  absl::flat_hash_map<uint64_t, Slot> slots_;
  absl::flat_hash_map<std::string, std::unique_ptr<Peer>> peers_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<InboundGroup>> inbound_groups_;  // by their own id
  absl::flat_hash_map<StreamKey, Route> routes_;
  std::vector<std::byte> read_ahead_ = std::vector<std::byte>(kReadAheadBytes);
  std::vector<EndedStream> ended_;    // told of after the event in which they ended
  std::vector<uint64_t> unfinished_;  // connections that want a turn without an event
  std::random_device random_;
  uint64_t next_id_;
  int num_inbound_ = 0;
  uint64_t refused_for_room_ = 0;
  TimePoint accept_again_ = kNoDeadline;

  std::thread thread_;  // last: starts when all else stands
};

}  // namespace tandem
