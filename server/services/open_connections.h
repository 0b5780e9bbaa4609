#pragma once

#include <sys/types.h>

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"

namespace tandem {

// The connections that are still open of those that were handed to gRPC, which closes them without
// telling anybody. They are found by looking at the descriptors: the inode of a socket is not given to
// another one while it is open.
class OpenConnections {
 public:
  // Adds a connection that has just been accepted. What was known under the same number is closed.
  void Add(int fd, TimePoint accepted);
  // At least as many as are open, at no cost.
  int upper_bound() const { return static_cast<int>(sockets_.size()); }
  // Looks which of them are open: one system call each.
  int Count();
  // Whether any of those that are known was accepted after `time`.
  bool HasAnyAcceptedAfter(TimePoint time) const;
  // Shuts down up to `most` of the open connections that were accepted after `time`: first those whose
  // peer has sent the fewest bytes, and the oldest among equals. They no longer count. gRPC notices, and
  // closes their descriptors. Returns how many there were. Costs one system call for each candidate.
  int EvictQuietest(TimePoint time, int most);

  // At least as many as are in their handshake, at no cost: those of which EvictUnfinished has not seen yet that
  // they have ended it.
  int unfinished_upper_bound() const { return static_cast<int>(unfinished_.size()); }
  // Forgets as unfinished those that were accepted before `time`, are closed, or whose peer has sent a second
  // segment, as a handshake over TLS and one of HTTP/2 both need it. Of the others it shuts down those that
  // have been quiet for the longest time, until fewer than `most` are left. One is left alone if it has not been
  // quiet for `patience`, or if it waits for this process, which has not read all that its peer has sent.
  // Where fewer may be shut down than would have to be, none is: this process is slow then, and not its peers.
  // `most` is at least 1. Returns how many were shut down. Costs three system calls for each unfinished
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

  absl::flat_hash_map<int, Socket> sockets_;  // by descriptor
  std::vector<Unfinished> unfinished_;
};

}  // namespace tandem
