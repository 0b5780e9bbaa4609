#pragma once

#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "transfer/framed/acceptor.h"
#include "transfer/framed/command_queue.h"
#include "transfer/framed/connection_table.h"
#include "transfer/framed/framed_options.h"
#include "transfer/framed/links.h"
#include "transfer/framed/payload_path.h"
#include "transfer/framed/peers.h"
#include "transfer/media/medium.h"

namespace tandem {

// The thread that does all I/O of a framed transport. It owns the connections and all that is in
// them; other threads reach it through commands alone. When there is nothing to do it sleeps in
// epoll_wait, except for two turns a second.
class IoLoop {
 public:
  // What the loop waits on.
  struct Sockets {
    ConnectionTable table;
    CommandQueue commands;

    // UNAVAILABLE when the process has no descriptor left.
    static absl::StatusOr<Sockets> Open();
  };

  // Starts the thread. Everything named outlives the loop. `receiver` gets the streams that come.
  IoLoop(const FramedOptions& options, Sockets sockets, Medium& medium, FrameReceiver& receiver,
         PayloadPath& path, OpenStreams& streams, Links& links, TransportCounters& counters);
  // Closes the connections, ends the streams with UNAVAILABLE, joins.
  ~IoLoop();

  // Thread-safe; never blocks.
  void Queue(StreamCommand command) { commands_.Push(std::move(command)); }
  bool IsLoopThread() const { return std::this_thread::get_id() == thread_.get_id(); }
  // As SendStream::Abort. Thread: the loop's.
  void AbortNow(OutgoingStream& stream) { peers_.Abort(stream); }

 private:
  void Run();
  int WaitMilliseconds() const;
  void Handle(uint64_t id);
  void ExecuteCommands();
  void AdvanceThoseWithoutRoom();
  void CloseOverdue();
  void Shutdown();

  const FramedOptions options_;
  Medium& medium_;
  PayloadPath& path_;
  OpenStreams& streams_;
  CommandQueue commands_;
  ConnectionTable table_;
  Acceptor acceptor_;
  Peers peers_;
  std::thread thread_;  // last: starts when everything else stands
};

}  // namespace tandem
