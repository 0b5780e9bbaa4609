#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace tandem {

// TCP connections to a gRPC port whose other end says nothing, or only what it is told to.
class RawConnections {
 public:
  RawConnections(const std::string& address, int count);

  // On each of them.
  void Send(const std::string& bytes);
  // Waits until at least this many have been closed by the server; false after a minute.
  bool AwaitClosed(int count);
  // Of the first one, until `size` bytes have come; shorter when it was closed, or after a minute.
  std::string Receive(size_t size);

 private:
  std::vector<UniqueFd> sockets_;
};

}  // namespace tandem
