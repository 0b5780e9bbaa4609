#include "tests/support/loopback_transport.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/status.h"
#include "transfer/media/socket_channel.h"

namespace tandem {
namespace {

// As many connections may wait to be accepted, as with a listening socket.
constexpr size_t kBacklog = 128;

// The connections that wait for one medium.
struct Listener {
  const UniqueFd event{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE)};
  std::deque<UniqueFd> waiting;
};

}  // namespace

struct LoopbackNetwork::State {
  absl::Mutex mutex;
  absl::flat_hash_map<std::string, std::unique_ptr<Listener>> listeners ABSL_GUARDED_BY(mutex);
  int next_number ABSL_GUARDED_BY(mutex) = 1;

  // The address and what becomes readable when somebody connects to it.
  std::pair<std::string, int> Join() {
    absl::MutexLock lock(&mutex);
    std::string address = fmt::format("loopback-{}", next_number++);
    auto listener = std::make_unique<Listener>();
    const int event = listener->event.get();
    TANDEM_CHECK(event >= 0, "no descriptor is left for a loopback medium");
    listeners[address] = std::move(listener);
    return {std::move(address), event};
  }

  void Leave(const std::string& address) {
    absl::MutexLock lock(&mutex);
    listeners.erase(address);
  }

  absl::Status Offer(std::string_view address, UniqueFd socket) {
    absl::MutexLock lock(&mutex);
    const auto place = listeners.find(std::string(address));
    if (place == listeners.end()) return Unavailable("there is no such peer");
    Listener& listener = *place->second;
    if (listener.waiting.size() >= kBacklog) return Unavailable("the peer does not accept");
    listener.waiting.push_back(std::move(socket));
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(listener.event.get(), &one, sizeof(one));
    return absl::OkStatus();
  }

  // Invalid when none waits.
  UniqueFd Take(const std::string& address) {
    absl::MutexLock lock(&mutex);
    Listener& listener = *listeners.at(address);
    if (listener.waiting.empty()) return UniqueFd();
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t cleared = read(listener.event.get(), &count, sizeof(count));
    UniqueFd socket = std::move(listener.waiting.front());
    listener.waiting.pop_front();
    return socket;
  }

  bool empty() {
    absl::MutexLock lock(&mutex);
    return listeners.empty();
  }
};

namespace {

class LoopbackMedium final : public Medium {
 public:
  LoopbackMedium(std::shared_ptr<LoopbackNetwork::State> network, std::pair<std::string, int> place)
      : network_(std::move(network)), address_(std::move(place.first)), event_(place.second) {}
  ~LoopbackMedium() override { network_->Leave(address_); }

  std::string_view name() const override { return "loopback"; }
  std::string address() const override { return address_; }
  absl::Status MayReach(std::string_view peer) const override {
    if (!peer.empty()) return absl::OkStatus();
    return InvalidArgument("address \"\": must name a loopback medium");
  }
  int listener_fd() const override { return event_; }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override {
    UniqueFd socket = network_->Take(address_);
    if (!socket.valid()) return nullptr;
    return std::make_unique<SocketChannel>(std::move(socket));
  }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
      return Unavailable("cannot make a socket pair: {}", ErrnoMessage(errno));
    }
    UniqueFd ours(ends[0]);
    RETURN_IF_ERROR(network_->Offer(peer, UniqueFd(ends[1])));
    return std::make_unique<SocketChannel>(std::move(ours));
  }
  size_t buffer_bytes() const override { return 0; }

 private:
  const std::shared_ptr<LoopbackNetwork::State> network_;
  const std::string address_;
  const int event_;  // the network's
};

}  // namespace

LoopbackNetwork::LoopbackNetwork() : state_(std::make_shared<State>()) {}

LoopbackNetwork::~LoopbackNetwork() {
  TANDEM_CHECK(state_->empty(), "a loopback medium outlived its network");
}

std::unique_ptr<Medium> LoopbackNetwork::NewMedium() {
  return std::make_unique<LoopbackMedium>(state_, state_->Join());
}

std::unique_ptr<Transport> LoopbackNetwork::NewTransport(FrameReceiver* receiver,
                                                         const FramedOptions& options) {
  auto transport = NewFramedTransport(options, NewMedium(), receiver);
  TANDEM_CHECK(transport.ok(), transport.status().ToString());
  return *std::move(transport);
}

}  // namespace tandem
