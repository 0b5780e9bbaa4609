#pragma once

#include <sys/types.h>

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"

namespace tandem {

// Those connections that were handed to gRPC and are still open. gRPC does not report when it
// closes one, so this looks at the descriptors: as long as a socket is open, no other has its
// inode.
class OpenConnections {
 public:
  // Adds a connection that has just been accepted. A connection known under the same descriptor
  // must have been closed, and is forgotten.
  void Add(int fd, TimePoint accepted);
  // An upper bound of the number of open connections, without a system call.
  int upper_bound() const { return static_cast<int>(sockets_.size()); }
  // The number of open connections. Costs one system call for each connection that is known.
  int Count();
  // Whether any connection that is known was accepted after `time`.
  bool HasAnyAcceptedAfter(TimePoint time) const;
  // Shuts down up to `most` of the open connections that were accepted after `time`: first those
  // whose peer has sent the fewest bytes, and the oldest among equals. They no longer count; gRPC
  // notices and closes their descriptors. Returns how many were shut down. Costs one system call
  // for each candidate.
  int EvictQuietest(TimePoint time, int most);

  // An upper bound of the number of handshakes in progress, without a system call: all connections
  // of which EvictUnfinished has not seen yet that their handshake is over.
  int unfinished_upper_bound() const { return static_cast<int>(unfinished_.size()); }
  // Shuts down handshakes until fewer than `most` are left, which is at least 1. First it forgets
  // connections whose handshake is over: those that were accepted before `time`, are closed, or
  // whose peer has sent a second segment, as handshakes of TLS and HTTP/2 need. Of the rest, those
  // that have been quiet for the longest time are shut down. A connection is spared if it has not
  // been quiet for `patience`, or if it waits for this process, which has not read all that its
  // peer has sent. If that leaves too few to shut down, none is: then this process is slow, and not
  // its peers. Returns how many were shut down. Costs three system calls for each unfinished
  // connection.
  int EvictUnfinished(TimePoint time, Duration patience, int most);

 private:
  struct Socket {
    ino_t inode;
    TimePoint accepted;
  };
  struct Unfinished {
    int fd;
    Socket socket;
  };

  absl::flat_hash_map<int, Socket> sockets_;  // the key is the descriptor
  std::vector<Unfinished> unfinished_;
};

}  // namespace tandem
