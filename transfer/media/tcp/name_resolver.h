#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bounded_queue.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {

// Looks up host names on a thread of its own, because the system's resolver blocks, for seconds when
// a name server is gone. The first question starts the thread.
// Thread: one thread calls Resolve; `done` is called on the resolver's thread, or never once the
// destructor runs.
class NameResolver {
 public:
  using Done = std::function<void(absl::StatusOr<std::vector<SocketAddress>> addresses)>;

  NameResolver() = default;
  ~NameResolver();  // waits for the lookup in progress

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
