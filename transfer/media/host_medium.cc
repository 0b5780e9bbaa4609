#include "transfer/media/host_medium.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/hash.h"
#include "base/status.h"
#include "transfer/media/socket_channel.h"
#include "transfer/media/unix_socket.h"

namespace tandem {
namespace {

constexpr size_t kHostDigits = 16;
constexpr size_t kMaxNameBytes = 100;  // sun_path holds 107 bytes after the leading zero

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

// A peer that refused shared memory with one of these codes would refuse the same memory again.
constexpr absl::StatusCode kFinal[] = {
    absl::StatusCode::kFailedPrecondition, absl::StatusCode::kInvalidArgument,
    absl::StatusCode::kPermissionDenied, absl::StatusCode::kUnimplemented};

absl::Status Refusal(absl::StatusCode code) {
  const bool is_final = std::ranges::find(kFinal, code) != std::end(kFinal);
  return MakeStatus(
      is_final ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnavailable,
      "the peer did not take the memory that this worker shares (status code {}): its log says why",
      static_cast<int>(code));
}

// The end of a connection that sends KV. The greeting is on its way; Establish waits for the
// answer.
class ConnectedHostChannel final : public SocketChannel {
 public:
  ConnectedHostChannel(UniqueFd socket, std::shared_ptr<SideChannel> side_channel)
      : SocketChannel(std::move(socket)), side_channel_(std::move(side_channel)) {}

  // Waits for the peer's answer to the greeting. FAILED_PRECONDITION when the peer would refuse
  // again, UNAVAILABLE when a later attempt may succeed.
  absl::StatusOr<bool> Establish() override {
    if (answer_count_ < answer_.size()) {
      ASSIGN_OR_RETURN(const Received received,
                       ReceiveWithDescriptors(fd(), std::span(answer_).subspan(answer_count_)));
      answer_count_ += received.count;
    }
    if (answer_count_ < answer_.size()) return false;
    const auto code = ParseMemoryAnswer(answer_);
    if (!code.ok()) return FailedPrecondition("{}", std::string(code.status().message()));
    if (*code != absl::StatusCode::kOk) return Refusal(*code);
    return true;
  }
  SideChannel* side_channel() override { return side_channel_.get(); }

 private:
  const std::shared_ptr<SideChannel> side_channel_;
  std::array<std::byte, kMemoryAnswerBytes> answer_{};
  size_t answer_count_ = 0;
};

// The end of a connection that receives KV. It opens the memory that the greeting describes
// (HostMedium::OpenShared) and closes it in its destructor.
class AcceptedHostChannel final : public SocketChannel {
 public:
  using OpenMemory = std::function<absl::StatusOr<std::unique_ptr<SideChannel>>(
      const MemoryGreeting& greeting, std::vector<UniqueFd> files)>;

  AcceptedHostChannel(UniqueFd socket, OpenMemory open_memory)
      : SocketChannel(std::move(socket)), open_memory_(std::move(open_memory)) {}

  // Receives the greeting and answers it. The call that completes the greeting takes as long as
  // OpenMemory. UNAVAILABLE when this side has no room for the memory.
  absl::StatusOr<bool> Establish() override {
    if (side_channel_) return true;
    ASSIGN_OR_RETURN(const bool whole, ReceiveGreeting());
    if (!whole) return false;
    const absl::Status opened = TakeMemory();
    const absl::Status told = SendWithDescriptors(fd(), EncodeMemoryAnswer(opened.code()), {});
    if (opened.ok()) {
      RETURN_IF_ERROR(told);
      return true;
    }
    if (absl::IsResourceExhausted(opened) || absl::IsUnavailable(opened)) {
      return Unavailable("{}", std::string(opened.message()));
    }
    return FailedPrecondition("{}", std::string(opened.message()));
  }
  SideChannel* side_channel() override { return side_channel_.get(); }

 private:
  absl::StatusOr<bool> ReceiveGreeting() {
    ASSIGN_OR_RETURN(Received received,
                     ReceiveWithDescriptors(fd(), std::span(greeting_).subspan(greeting_count_)));
    std::ranges::move(received.descriptors, std::back_inserter(files_));
    // A peer may send descriptors with every byte, so the bound on one message is not enough.
    if (files_.size() > kMaxMemorySegments) {
      return FailedPrecondition("the peer sent more than {} files with its greeting",
                                kMaxMemorySegments);
    }
    greeting_count_ += received.count;
    return greeting_count_ == greeting_.size();
  }
  absl::Status TakeMemory() {
    ASSIGN_OR_RETURN(const MemoryGreeting greeting, ParseMemoryGreeting(greeting_));
    ASSIGN_OR_RETURN(side_channel_, open_memory_(greeting, std::move(files_)));
    return absl::OkStatus();
  }

  const OpenMemory open_memory_;
  std::array<std::byte, kMemoryGreetingBytes> greeting_{};
  size_t greeting_count_ = 0;
  std::vector<UniqueFd> files_;  // descriptors that came with the greeting
  std::unique_ptr<SideChannel> side_channel_;
};

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
  // It does no harm if this answer is lost: the peer sees the end of the connection.
  SendWithDescriptors(socket.get(), EncodeMemoryAnswer(absl::StatusCode::kPermissionDenied), {})
      .IgnoreError();
  return PermissionDenied("{}: the peer is of another user", name());
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
