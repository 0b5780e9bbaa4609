// An NCCL that the production loader can open: communicators of two ranks, in one process or two,
// whose bytes go through a unix socket named by the unique id. It behaves as a non-blocking
// communicator is documented to, and like NCCL's kernel a send or receive spins when its peer has
// died, until the communicator is aborted. Whoever breaks a rule ends the process with a line that
// says which: a call while another is in progress, from two threads at once, after the abort, or
// sizes that differ.
#include "tests/simt/fake_nccl.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

namespace {

[[noreturn]] void Misuse(const char* what) {
  std::fprintf(stderr, "fake NCCL: %s\n", what);
  std::abort();
}

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

Socket NewSocket() {
  return Socket(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// The id is the name of a socket in the abstract namespace.
sockaddr_un AddressOf(const ncclUniqueId& id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, id.internal, 32);
  return address;
}
constexpr socklen_t kAddressBytes = offsetof(sockaddr_un, sun_path) + 1 + 32;

// What the kernels of a communicator share with it: they outlive it by a turn.
struct Link {
  Socket socket;
  std::atomic<bool> aborted = false;
};

// A send or a receive once it is on its stream. First come 8 bytes that say how many follow.
struct Transfer {
  std::shared_ptr<Link> link;
  bool sends = false;
  bool fails = false;  // the network has failed: spins to the end
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint64_t moved = 0;  // of the 8 and the bytes
  uint64_t peer_bytes = 0;

  static constexpr uint64_t kHead = sizeof(uint64_t);

  // What is to move next.
  std::pair<std::byte*, size_t> Next() {
    if (moved >= kHead) return {data + (moved - kHead), bytes - (moved - kHead)};
    auto* head = reinterpret_cast<std::byte*>(sends ? &bytes : &peer_bytes);
    return {head + moved, kHead - moved};
  }
  bool Poll() {
    while (!link->aborted) {
      if (fails) return false;
      if (moved == kHead && !sends && peer_bytes != bytes) Misuse("a receive of another size");
      if (moved == kHead + bytes) return true;
      const auto [at, size] = Next();
      const ssize_t count = sends ? send(link->socket.get(), at, size, MSG_NOSIGNAL)
                                  : recv(link->socket.get(), at, size, 0);
      if (count <= 0) return false;  // nothing for now, or nobody any more: spins
      moved += static_cast<uint64_t>(count);
    }
    return true;
  }
};

struct Communicator {
  ncclUniqueId id{};
  int rank = 0;
  bool hangs = false;
  Socket listener;  // rank 0, until the other has come
  std::shared_ptr<Link> link = std::make_shared<Link>();
  bool greeted = false;  // rank 0 says one byte when it has accepted
  ncclResult_t state = ncclInProgress;
  std::string error;
  std::unique_ptr<Transfer> pending;  // called, not on its stream yet
  cudaStream_t stream = nullptr;
  int polls_to_launch = 0;
  std::atomic_flag in_call;
};

struct World {
  FakeNccl fake;
  std::mutex mutex;
  std::random_device random;
  std::map<std::string, Socket> listeners;  // of ids that no rank 0 has taken
  std::map<ncclComm_t, std::unique_ptr<Communicator>> communicators;
  uintptr_t last_handle = 0;  // never used twice, so that a late call is seen
};

World& TheWorld() {
  static World& world = *new World;
  return world;
}

Communicator& Find(ncclComm_t handle) {
  std::lock_guard lock(TheWorld().mutex);
  const auto found = TheWorld().communicators.find(handle);
  if (found == TheWorld().communicators.end()) Misuse("a call for no communicator");
  return *found->second;
}

// One call at a time.
class Call {
 public:
  explicit Call(Communicator& communicator) : communicator_(communicator) {
    if (communicator_.in_call.test_and_set()) Misuse("two threads in one communicator");
  }
  Call(const Call&) = delete;
  ~Call() { communicator_.in_call.clear(); }

 private:
  Communicator& communicator_;
};

void Fail(Communicator& communicator, ncclResult_t result, const char* error) {
  communicator.state = result;
  communicator.error = error;
}

void AcceptPeer(Communicator& communicator) {
  Socket accepted(
      accept4(communicator.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!accepted.valid()) return;
  const char greeting = 'r';
  if (send(accepted.get(), &greeting, 1, MSG_NOSIGNAL) != 1) return;
  communicator.link->socket = std::move(accepted);
  communicator.listener = Socket();
  communicator.state = ncclSuccess;
}

void ConnectToPeer(Communicator& communicator) {
  Socket& socket = communicator.link->socket;
  if (!socket.valid()) {
    Socket connecting = NewSocket();
    const sockaddr_un address = AddressOf(communicator.id);
    const auto* name = reinterpret_cast<const sockaddr*>(&address);
    if (connect(connecting.get(), name, kAddressBytes) != 0) return;  // tries again
    socket = std::move(connecting);
  }
  char greeting = 0;
  if (recv(socket.get(), &greeting, 1, 0) == 1) communicator.state = ncclSuccess;
}

using Queue = int (*)(cudaStream_t, int (*)(void*), void (*)(void*), void*);

int PollTransfer(void* state) { return static_cast<Transfer*>(state)->Poll() ? 1 : 0; }
void DropTransfer(void* state) { delete static_cast<Transfer*>(state); }

// A while after the call, as NCCL's own thread would.
void LaunchPending(Communicator& communicator) {
  if (--communicator.polls_to_launch > 0) return;
  static const auto queue = reinterpret_cast<Queue>(dlsym(RTLD_DEFAULT, "simt_queue_polled"));
  if (queue == nullptr) Misuse("no emulated GPU in this program");
  const bool fails = communicator.pending->fails;
  if (queue(communicator.stream, PollTransfer, DropTransfer, communicator.pending.release()) != 0) {
    return Fail(communicator, ncclUnhandledCudaError, "the stream takes no work");
  }
  communicator.state = ncclSuccess;
  if (fails) Fail(communicator, ncclRemoteError, "the network of the fake has failed");
}

ncclResult_t Begin(ncclComm_t handle, bool sends, void* data, size_t count, int peer,
                   cudaStream_t stream) {
  Communicator& communicator = Find(handle);
  const Call call(communicator);
  if (communicator.state == ncclInProgress) Misuse("a call while another is in progress");
  if (communicator.state != ncclSuccess) return ncclInvalidUsage;
  if (peer != 1 - communicator.rank) return ncclInvalidArgument;
  World& world = TheWorld();
  const bool fails =
      world.fake.operations_until_error >= 0 && world.fake.operations_until_error-- == 0;
  communicator.pending = std::make_unique<Transfer>(Transfer{.link = communicator.link,
                                                             .sends = sends,
                                                             .fails = fails,
                                                             .data = static_cast<std::byte*>(data),
                                                             .bytes = count});
  communicator.stream = stream;
  communicator.polls_to_launch = 1 + static_cast<int>(count % 3);
  communicator.state = ncclInProgress;
  return ncclInProgress;
}

}  // namespace

FakeNccl* fake_nccl() { return &TheWorld().fake; }

ncclResult_t ncclGetVersion(int* version) {
  *version = TheWorld().fake.version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  World& world = TheWorld();
  std::lock_guard lock(world.mutex);
  *id = {};
  for (int i = 0; i < 32; ++i) id->internal[i] = static_cast<char>('a' + world.random() % 26);
  Socket listener = NewSocket();
  const sockaddr_un address = AddressOf(*id);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), kAddressBytes) != 0 ||
      listen(listener.get(), 1) != 0) {
    return ncclSystemError;
  }
  world.listeners[std::string(id->internal, 32)] = std::move(listener);
  ++world.fake.ids;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config == nullptr || config->magic != NCCL_CONFIG_MAGIC_OF_FAKE) Misuse("no configuration");
  if (config->blocking != 0) Misuse("a communicator that blocks");
  if (ranks != 2 || rank < 0 || rank > 1) return ncclInvalidArgument;
  World& world = TheWorld();
  auto communicator = std::make_unique<Communicator>();
  communicator->id = id;
  communicator->rank = rank;
  communicator->hangs = world.fake.init_hangs;
  if (world.fake.init_fails) Fail(*communicator, ncclSystemError, "the fake was told to fail");
  std::lock_guard lock(world.mutex);
  if (rank == 0) {
    auto listener = world.listeners.extract(std::string(id.internal, 32));
    if (listener.empty()) Misuse("rank 0 with the id of another process");
    communicator->listener = std::move(listener.mapped());
  }
  *handle = reinterpret_cast<ncclComm_t>(world.last_handle += 16);
  world.communicators[*handle] = std::move(communicator);
  ++world.fake.communicators;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  Communicator& communicator = Find(handle);
  const Call call(communicator);
  if (communicator.state == ncclInProgress && !communicator.hangs) {
    if (communicator.pending != nullptr) {
      LaunchPending(communicator);
    } else if (communicator.rank == 0) {
      AcceptPeer(communicator);
    } else {
      ConnectToPeer(communicator);
    }
  }
  *error = communicator.state;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  Communicator& communicator = Find(handle);
  {
    const Call call(communicator);
    while (TheWorld().fake.abort_blocks) std::this_thread::yield();
    communicator.link->aborted = true;
  }
  World& world = TheWorld();
  std::lock_guard lock(world.mutex);
  world.communicators.erase(handle);
  --world.fake.communicators;
  ++world.fake.aborts;
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  return Begin(handle, true, const_cast<void*>(data), count, peer, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  return Begin(handle, false, data, count, peer, stream);
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error - please report this issue to the NCCL developers";
  }
}

// Of the latest call of the process in the library; here, of the communicator.
const char* ncclGetLastError(ncclComm_t handle) {
  if (handle == nullptr) return "";
  return Find(handle).error.c_str();
}
