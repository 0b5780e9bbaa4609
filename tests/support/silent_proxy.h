#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "transfer/media/tcp/socket.h"

namespace tandem {

// A TCP proxy before a server on 127.0.0.1, which it listens for on 127.0.0.2 at a port of its
// choice. It can fall silent as a network does that loses everything: connections stand, new ones
// come about, and nothing is said to anybody of what is not passed on.
// Thread-safe.
class SilentProxy {
 public:
  SilentProxy();
  ~SilentProxy();

  uint16_t port() const { return LocalPort(listener_); }

  void FallSilent() { Set(Mode::kSilent); }
  void Forward() { Set(Mode::kForward); }  // also what came meanwhile

 private:
  enum class Mode { kForward, kSilent, kStop };
  struct Direction {
    int from;
    int to;
  };

  void Set(Mode mode);
  void Run();
  void Accept();
  // False once one side has ended.
  static bool Pass(const Direction& direction);

  const UniqueFd listener_;
  const UniqueFd wake_;
  std::atomic<Mode> mode_ = Mode::kForward;
  // Its thread's. Those of connections that have ended stay open till the end.
  std::vector<UniqueFd> sockets_;
  std::vector<Direction> directions_;
  std::thread thread_;
};

}  // namespace tandem
