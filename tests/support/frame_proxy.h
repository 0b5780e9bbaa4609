#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tests/support/frame_faults.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {

// What a proxy did since its start.
struct ProxyCounts {
  uint64_t connections = 0;
  uint64_t unreached = 0;   // connections that were closed since there was no target
  uint64_t not_frames = 0;  // directions of connections that turned out not to speak frames
  uint64_t frames = 0;      // that the hook was asked about
  uint64_t dropped = 0;
  uint64_t duplicated = 0;
  uint64_t swapped = 0;
  uint64_t flipped = 0;
  uint64_t cut = 0;
  uint64_t held = 0;
};

// A TCP proxy on this host between senders and one receiver that does to frames what a bad network
// does. Every connection that is made to it is proxied to the target. It passes everything until
// it is given a hook.
// Thread-safe. The hook is called on the proxy's thread, under no lock; it must not block.
class FrameProxy {
 public:
  static absl::StatusOr<std::unique_ptr<FrameProxy>> Open();
  ~FrameProxy();

  // "127.0.0.1:port".
  const std::string& address() const { return address_; }

  // Where new connections go, "host:port" with a numeric host. Before, they are closed.
  void SetTarget(std::string_view target);
  // Holds from the next frame on. The one before may still be running when this returns.
  void SetHook(FrameHook hook);
  // What is held goes on, and what waits to be swapped with a frame that did not come.
  void Release();
  // Passes everything from now on, and releases.
  void Heal();
  // Ends the connections that stand now, between frames.
  void CutConnections();

  ProxyCounts counts() const;
  // Waits until a count is reached, e.g. Await(&ProxyCounts::held, 1). False after kPatience.
  bool Await(uint64_t ProxyCounts::*count, uint64_t at_least) const;
  // Waits until who made this connection has closed its end, too. False after kPatience.
  bool AwaitClosedBySender(uint64_t connection) const;

 private:
  struct Side {
    UniqueFd fd;
    std::string out;          // to be written to fd
    bool read_over = false;   // its end or an error was seen
    bool write_over = false;  // shut down, or an error was seen
  };
  // Side 0 connected to the proxy, side 1 is the target. faults[i] reads side i, writes the other.
  struct Pair {
    uint64_t number = 0;
    Side sides[2];
    FrameFaults faults[2];
    bool cut = false;  // what comes is thrown away, what went out is still written
    bool over() const { return sides[0].read_over && sides[1].read_over; }
  };
  // What the other threads ask for.
  struct Orders {
    FrameHook hook;
    std::string target;
    uint64_t releases = 0;
    uint64_t cuts = 0;
    bool stop = false;
  };

  FrameProxy(UniqueFd listener, UniqueFd wake);

  void Run();
  void Obey();
  std::vector<pollfd> Watched() const;
  void AcceptAll();
  void Serve(Pair& pair, size_t side, short events);
  void ReadSide(Pair& pair, size_t side);
  void WriteSide(Pair& pair, size_t side);
  void AfterFaults(Pair& pair, size_t side);
  FrameAction Ask(const ObservedFrame& frame);
  void Give(void (*order)(Orders&));
  void Wake();

  const UniqueFd listener_;
  const UniqueFd wake_;
  const std::string address_;

  // The proxy's thread only.
  std::vector<std::unique_ptr<Pair>> pairs_;
  Orders obeyed_;
  FrameHook hook_;
  std::string read_buffer_;

  mutable absl::Mutex mutex_;
  Orders orders_ ABSL_GUARDED_BY(mutex_);
  ProxyCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> closed_by_sender_ ABSL_GUARDED_BY(mutex_);  // connections

  std::thread thread_;
};

}  // namespace tandem
