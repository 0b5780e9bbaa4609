#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bounded_queue.h"
#include "transfer/tcp/socket.h"

namespace tandem {

// Looks up host names on a thread of its own, which is started by the first question: the system's
// resolver blocks, for seconds when a name server is gone.
// Thread: Resolve from one thread; `done` is called on the resolver's.
class NameResolver {
 public:
  using Done =
      std::function<void(uint64_t ticket, absl::StatusOr<std::vector<SocketAddress>> addresses)>;

  explicit NameResolver(Done done) : done_(std::move(done)) {}
  ~NameResolver();  // waits for the question in progress

  // False when too many questions wait.
  [[nodiscard]] bool Resolve(uint64_t ticket, HostPort peer);

 private:
  struct Question {
    uint64_t ticket = 0;
    HostPort peer;
  };

  void Run();

  const Done done_;
  BoundedQueue<Question> questions_{256};
  std::thread thread_;
};

}  // namespace tandem
