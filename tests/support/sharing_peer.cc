#include "tests/support/sharing_peer.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "base/hash.h"
#include "base/status.h"
#include "kernels/registry.h"

namespace tandem {

// One packet each way. What is a pointer or a string travels as bytes.
struct SharingOrder {
  enum class What : int32_t { kAllocate, kFill, kFree, kOpen, kRead };

  What what;
  MemoryHandle::Kind kind;
  uint64_t bytes;
  uint64_t seed;
  std::array<std::byte, MemoryHandle::kTokenBytes> token;
};

namespace {

using What = SharingOrder::What;

constexpr size_t kReadExtentBytes = 40000;

struct Reply {
  int32_t code;
  char message[400];
  MemoryHandle::Kind kind;
  uint64_t bytes;
  uint64_t hash;
  std::array<std::byte, MemoryHandle::kTokenBytes> token;
};

struct Birth {
  char backend[32];
  int32_t choice;
};

int nursery_socket = -1;
void (*prepare_peer)(int choice) = nullptr;

[[noreturn]] void Give(const char* what) {
  std::perror(what);
  std::abort();
}

template <class Packet>
void Send(int socket, const Packet& packet, int file) {
  iovec part = {const_cast<Packet*>(&packet), sizeof(packet)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  }
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != sizeof(packet)) Give("sendmsg to a peer");
}

// False when the other side is gone.
template <class Packet>
bool Receive(int socket, Packet& packet, UniqueFd& file) {
  iovec part = {&packet, sizeof(packet)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof(packet)) return false;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(header), sizeof(int));
    file = UniqueFd(received);
  }
  return true;
}

// The two ends of a connection.
std::pair<UniqueFd, UniqueFd> NewConnection() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) Give("socketpair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// What runs in the peer's process.
class PeerProcess {
 public:
  explicit PeerProcess(const std::string& backend)
      : backend_(*OpenBackend(backend, {.num_threads = 1})),
        stream_(*backend_.device->NewStream()) {}

  absl::Status Do(const SharingOrder& order, UniqueFd file, MemoryHandle& handle, uint64_t& hash) {
    switch (order.what) {
      case What::kAllocate: {
        ASSIGN_OR_RETURN(shared_, backend_.device->AllocateShared(order.bytes));
        RETURN_IF_ERROR(Write(order.seed));
        ASSIGN_OR_RETURN(handle, backend_.device->Share(shared_.bytes()));
        return absl::OkStatus();
      }
      case What::kFill:
        return Write(order.seed);
      case What::kFree:
        shared_ = DeviceBuffer();
        return absl::OkStatus();
      case What::kOpen: {
        MemoryHandle wanted{.kind = order.kind, .bytes = order.bytes, .file = std::move(file)};
        wanted.token = order.token;
        ASSIGN_OR_RETURN(opened_, backend_.device->OpenShared(wanted));
        return absl::OkStatus();
      }
      case What::kRead: {
        ASSIGN_OR_RETURN(hash, ReadOpened());
        return absl::OkStatus();
      }
    }
    return Internal("no such order");
  }

 private:
  absl::Status Write(uint64_t seed) {
    RETURN_IF_ERROR(stream_->Copy(shared_.bytes(), SharedContent(seed, shared_.size())));
    return stream_->Synchronize();
  }
  absl::StatusOr<uint64_t> ReadOpened() {
    ASSIGN_OR_RETURN(const DeviceBuffer own, backend_.device->Allocate(opened_.size()));
    std::vector<ExtentCopy> copies;
    for (size_t at = 0; at < own.size(); at += kReadExtentBytes) {
      const size_t bytes = std::min(kReadExtentBytes, own.size() - at);
      copies.push_back({own.bytes().subspan(at, bytes), opened_.bytes().subspan(at, bytes)});
    }
    ASSIGN_OR_RETURN(const DeviceBuffer words,
                     backend_.device->AllocateHost(copies.size() * sizeof(uint64_t)));
    const std::span hashes(reinterpret_cast<uint64_t*>(words.data()), copies.size());
    RETURN_IF_ERROR(stream_->CopyAll(copies, hashes));
    std::vector<std::byte> seen(own.size());
    RETURN_IF_ERROR(stream_->Copy(seen, own.bytes()));
    RETURN_IF_ERROR(stream_->Synchronize());
    for (size_t i = 0; i < copies.size(); ++i) {
      const auto extent = std::span(seen).subspan(i * kReadExtentBytes, copies[i].dst.size());
      if (hashes[i] != Hash64(extent)) return DataLoss("extent {} has another hash", i);
    }
    return Hash64(seen);
  }

  Backend backend_;
  std::unique_ptr<Stream> stream_;
  DeviceBuffer shared_;
  DeviceBuffer opened_;
};

Reply ReplyWith(const absl::Status& status, const MemoryHandle& handle, uint64_t hash) {
  Reply reply = {};
  reply.code = static_cast<int32_t>(status.code());
  const std::string message(status.message());
  std::snprintf(reply.message, sizeof(reply.message), "%s", message.c_str());
  reply.kind = handle.kind;
  reply.bytes = handle.bytes;
  reply.token = handle.token;
  reply.hash = hash;
  return reply;
}

[[noreturn]] void Serve(int socket, const Birth& birth) {
  if (prepare_peer != nullptr) prepare_peer(birth.choice);
  {
    PeerProcess process(birth.backend);
    SharingOrder order;
    UniqueFd file;
    while (Receive(socket, order, file)) {
      MemoryHandle handle;
      uint64_t hash = 0;
      const absl::Status status = process.Do(order, std::move(file), handle, hash);
      Send(socket, ReplyWith(status, handle, hash), handle.file.get());
      file = UniqueFd();
    }
  }
  _exit(0);
}

// Forks a peer for each socket that comes, until the test is gone.
[[noreturn]] void Nurse(int orders) {
  signal(SIGCHLD, SIG_IGN);  // nobody waits for peers
  Birth birth;
  UniqueFd socket;
  while (Receive(orders, birth, socket)) {
    const pid_t child = fork();
    if (child < 0) Give("fork of a peer");
    if (child == 0) {
      signal(SIGCHLD, SIG_DFL);
      close(orders);
      const pid_t process = getpid();
      Send(socket.get(), process, -1);
      Serve(socket.get(), birth);
    }
    socket = UniqueFd();
  }
  _exit(0);
}

}  // namespace

struct SharingPeer::Answer {
  absl::Status status;
  MemoryHandle handle;
  uint64_t hash = 0;
};

std::vector<std::byte> SharedContent(uint64_t seed, size_t bytes) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> words(bytes / sizeof(uint64_t) + 1);
  std::ranges::generate(words, std::ref(random));
  const auto* begin = reinterpret_cast<const std::byte*>(words.data());
  return {begin, begin + bytes};
}

void SharingPeer::StartNursery(void (*prepare)(int choice)) {
  prepare_peer = prepare;
  auto [own, nurses] = NewConnection();
  const pid_t child = fork();
  if (child < 0) Give("fork of the nursery");
  if (child == 0) {
    own = UniqueFd();
    Nurse(nurses.get());
  }
  nursery_socket = dup(own.get());
}

SharingPeer::SharingPeer(std::string_view backend, int choice) {
  auto [own, peers] = NewConnection();
  Birth birth = {};
  backend.copy(birth.backend, sizeof(birth.backend) - 1);
  birth.choice = choice;
  Send(nursery_socket, birth, peers.get());
  peers = UniqueFd();
  UniqueFd none;
  if (!Receive(own.get(), process_, none)) Give("a peer that was not born");
  socket_ = std::move(own);
}

SharingPeer::~SharingPeer() = default;

SharingPeer::Answer SharingPeer::Ask(SharingOrder order, int file) {
  Send(socket_.get(), order, file);
  Reply reply;
  Answer answer;
  if (!Receive(socket_.get(), reply, answer.handle.file)) {
    answer.status = Unavailable("the peer has died");
    return answer;
  }
  answer.status =
      absl::Status(static_cast<absl::StatusCode>(reply.code), std::string(reply.message));
  answer.handle.kind = reply.kind;
  answer.handle.bytes = reply.bytes;
  answer.handle.token = reply.token;
  answer.hash = reply.hash;
  return answer;
}

absl::StatusOr<MemoryHandle> SharingPeer::Allocate(size_t bytes, uint64_t seed) {
  Answer answer = Ask({.what = What::kAllocate, .bytes = bytes, .seed = seed}, -1);
  if (!answer.status.ok()) return answer.status;
  return std::move(answer.handle);
}

absl::Status SharingPeer::Fill(uint64_t seed) {
  return Ask({.what = What::kFill, .seed = seed}, -1).status;
}

absl::Status SharingPeer::Free() { return Ask({.what = What::kFree}, -1).status; }

absl::Status SharingPeer::Open(const MemoryHandle& handle) {
  SharingOrder order = {.what = What::kOpen, .kind = handle.kind, .bytes = handle.bytes};
  order.token = handle.token;
  return Ask(order, handle.file.get()).status;
}

absl::StatusOr<uint64_t> SharingPeer::Read() {
  const Answer answer = Ask({.what = What::kRead}, -1);
  if (!answer.status.ok()) return answer.status;
  return answer.hash;
}

void SharingPeer::Kill() {
  kill(process_, SIGKILL);
  Reply reply;
  UniqueFd file;
  if (Receive(socket_.get(), reply, file)) Give("a dead peer that answers");
}

}  // namespace tandem
