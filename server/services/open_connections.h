#pragma once

#include <sys/types.h>

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

 private:
  struct Socket {
    ino_t inode;
    TimePoint accepted;
  };

  absl::flat_hash_map<int, Socket> sockets_;  // by descriptor
};

}  // namespace tandem
