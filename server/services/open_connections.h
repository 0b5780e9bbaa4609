#pragma once

#include <sys/types.h>

#include "absl/container/flat_hash_map.h"

namespace tandem {

// Counts the connections that are still open of those that were handed to gRPC, which closes them
// without telling anybody. The count is found by looking at the descriptors: the inode of a socket
// is not given to another one while it is open.
class OpenConnections {
 public:
  // A connection that has just been accepted. What was known under the same number is closed.
  void Add(int fd);
  // At least as many as are open, at no cost.
  int upper_bound() const { return static_cast<int>(sockets_.size()); }
  // Looks which of them are open: one system call each.
  int Count();

 private:
  absl::flat_hash_map<int, ino_t> sockets_;  // by descriptor
};

}  // namespace tandem
