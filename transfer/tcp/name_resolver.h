#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bounded_queue.h"
#include "transfer/tcp/socket.h"

namespace tandem {

// Looks up host names on a thread of its own, which is started by the first question: the system's
// resolver blocks, for seconds when a name server is gone.
// Thread: Resolve from one thread; `done` is called on the resolver's, or never once the resolver
// is being destroyed.
class NameResolver {
 public:
  using Done = std::function<void(absl::StatusOr<std::vector<SocketAddress>> addresses)>;

  NameResolver() = default;
  ~NameResolver();  // waits for the question in progress

  // False when too many questions wait.
  [[nodiscard]] bool Resolve(HostPort peer, Done done);

 private:
  struct Question {
    HostPort peer;
    Done done;
  };

  void Run();

  BoundedQueue<Question> questions_{256};
  std::thread thread_;
};

}  // namespace tandem
