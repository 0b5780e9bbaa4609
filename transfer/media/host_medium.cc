#include "transfer/media/host_medium.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>

#include "base/hash.h"
#include "base/status.h"
#include "transfer/media/unix_socket.h"

namespace tandem {
namespace {

constexpr size_t kHostDigits = 16;
constexpr size_t kMaxNameBytes = 100;  // sun_path holds 107 after the zero

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

absl::Status NoAddress(std::string_view text) {
  return InvalidArgument("address \"{}\" within a host: must be 16 hexadecimal digits, '-', a name",
                         text.substr(0, kHostDigits + 1 + kMaxNameBytes));
}

absl::StatusOr<uint64_t> ThisHost() {
  constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
  constexpr const char* kNetwork = "/proc/self/ns/net";
  std::string identity;
  std::getline(std::ifstream(kBootId), identity);
  if (identity.empty()) return Unavailable("cannot read {}", kBootId);
  std::array<char, 64> network{};
  const ssize_t size = readlink(kNetwork, network.data(), network.size());
  if (size <= 0) return Unavailable("cannot read {}: {}", kNetwork, ErrnoMessage(errno));
  identity.append(network.data(), static_cast<size_t>(size));
  return Hash64(std::as_bytes(std::span(identity)));
}

absl::StatusOr<std::string> NewName() {
  std::array<uint64_t, 2> random{};
  if (getrandom(random.data(), sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) {
    return Unavailable("no random bytes for a name: {}", ErrnoMessage(errno));
  }
  return fmt::format("tandem-{}-{:016x}{:016x}", getpid(), random[0], random[1]);
}

}  // namespace

std::string HostAddress::Text() const { return fmt::format("{:016x}-{}", host, name); }

absl::StatusOr<HostAddress> ParseHostAddress(std::string_view text) {
  if (text.size() < kHostDigits + 2 || text.size() > kHostDigits + 1 + kMaxNameBytes ||
      text[kHostDigits] != '-') {
    return NoAddress(text);
  }
  HostAddress address = {.name = std::string(text.substr(kHostDigits + 1))};
  const char* digits_end = text.data() + kHostDigits;
  const auto parsed = std::from_chars(text.data(), digits_end, address.host, 16);
  if (parsed.ec != std::errc() || parsed.ptr != digits_end ||
      !std::ranges::all_of(address.name, IsNameCharacter)) {
    return NoAddress(text);
  }
  return address;
}

absl::StatusOr<HostAddress> NewHostAddress() {
  HostAddress address;
  ASSIGN_OR_RETURN(address.host, ThisHost());
  ASSIGN_OR_RETURN(address.name, NewName());
  return address;
}

absl::StatusOr<HostListener> HostListener::Open() {
  ASSIGN_OR_RETURN(HostAddress address, NewHostAddress());
  ASSIGN_OR_RETURN(UniqueFd socket, ListenUnix(address.name));
  return HostListener{.address = std::move(address), .socket = std::move(socket)};
}

absl::Status HostMedium::MayReach(std::string_view peer) const {
  ASSIGN_OR_RETURN(const HostAddress address, ParseHostAddress(peer));
  if (address.host == listener_.address.host) return absl::OkStatus();
  return Unavailable("{} is on another host or in another network namespace", peer);
}

absl::StatusOr<std::unique_ptr<ByteChannel>> HostMedium::Accept() {
  ASSIGN_OR_RETURN(UniqueFd socket, AcceptSocket(listener_fd()));
  if (!socket.valid()) return nullptr;
  if (PeerIsSameUser(socket.get())) {
    return std::make_unique<AcceptedHostChannel>(
        std::move(socket), [this](const MemoryGreeting& greeting, std::vector<UniqueFd> files) {
          return OpenShared(greeting, std::move(files));
        });
  }
  // The peer sees the end of the connection if this answer does not reach it.
  SendWithDescriptors(socket.get(), EncodeMemoryAnswer(absl::StatusCode::kPermissionDenied), {})
      .IgnoreError();
  return MakeStatus(absl::StatusCode::kPermissionDenied, "{}: the peer is of another user", name());
}

absl::StatusOr<std::unique_ptr<ByteChannel>> HostMedium::Connect(std::string_view peer) {
  ASSIGN_OR_RETURN(const HostAddress address, ParseHostAddress(peer));
  ASSIGN_OR_RETURN(SharedMemory shared, Share());
  ASSIGN_OR_RETURN(UniqueFd socket, ConnectUnix(address.name));
  if (!PeerIsSameUser(socket.get())) {
    return FailedPrecondition("{} belongs to another user", peer);
  }
  RETURN_IF_ERROR(
      SendWithDescriptors(socket.get(), EncodeMemoryGreeting(shared.greeting), shared.files));
  return std::make_unique<ConnectedHostChannel>(std::move(socket), std::move(shared.side_channel));
}

}  // namespace tandem
