#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// A file descriptor, closed by its destructor. Move-only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct HostPort {
  std::string host;
  std::string port;
};

// "host:port" or "[v6 address]:port". INVALID_ARGUMENT quotes what was given.
absl::StatusOr<HostPort> ParseHostPort(std::string_view address);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

enum class NameLookup : uint8_t {
  kNumericOnly,  // does not leave the process, returns at once
  kByName,       // may ask the network and take seconds
};

// The addresses of a TCP peer, in the system's order of preference, at least one.
// UNAVAILABLE with the system's message.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const HostPort& peer, NameLookup lookup);

// A non-blocking listening socket. UNAVAILABLE with the address.
absl::StatusOr<UniqueFd> Listen(const std::string& host, uint16_t port);

// The port that a listening socket was given.
uint16_t LocalPort(const UniqueFd& listener);

// A non-blocking socket on its way to `address`: writable once that is decided.
absl::StatusOr<UniqueFd> StartConnect(const SocketAddress& address);

// How the connecting ended. UNAVAILABLE with the system's message.
absl::Status ConnectResult(const UniqueFd& socket);

// No delay for small frames, and an end in bounded time when the peer's machine is gone.
void SetStreamOptions(const UniqueFd& socket);

// The system's message for an errno value.
std::string ErrnoMessage(int error);

}  // namespace tandem
