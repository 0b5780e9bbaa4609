#include "transfer/loopback/loopback_transport.h"

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/bounded_queue.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"
#include "transfer/refused_streams.h"
#include "transfer/send_streams.h"

namespace tandem {
namespace {

// Says whether the payloads of one stream may be read. The receiver's thread reads them between
// BeginRead and EndRead; who ends the stream closes the gate, which waits for a read under way.
// Thread-safe.
class PayloadGate {
 public:
  [[nodiscard]] bool BeginRead() {
    absl::MutexLock lock(&mutex_);
    reading_ = open_;
    return open_;
  }
  void EndRead() {
    absl::MutexLock lock(&mutex_);
    reading_ = false;
  }
  void Close() {
    absl::MutexLock lock(&mutex_);
    open_ = false;
    auto unread = [this] {
      mutex_.AssertHeld();
      return !reading_;
    };
    mutex_.Await(absl::Condition(&unread));
  }

 private:
  absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
};

struct Inbox;

// To the receiver's thread.
struct IncomingFrame {
  std::shared_ptr<Inbox> sender;
  std::shared_ptr<SendStreams> sender_streams;
  std::shared_ptr<PayloadGate> gate;
  uint64_t serial = 0;
  FrameHeader header;
  std::span<const std::byte> payload;
};
// To the sender's thread.
struct StreamResult {
  StreamKey key;
  uint64_t serial = 0;
  absl::Status status;
};
// To every thread of the network.
struct PeerGone {
  std::shared_ptr<Inbox> peer;
};
using Message = std::variant<IncomingFrame, StreamResult, PeerGone>;

// Bounded by what SendStreams admits.
struct Inbox {
  explicit Inbox(std::string address_in) : address(std::move(address_in)) {}
  const std::string address;
  BoundedQueue<Message> messages{std::numeric_limits<size_t>::max()};
};

constexpr int32_t kMaxQueuedFrames = 1 << 18;

}  // namespace

struct LoopbackNetwork::State {
  absl::Mutex mutex;
  absl::flat_hash_map<std::string, std::shared_ptr<Inbox>> inboxes ABSL_GUARDED_BY(mutex);
  int next_number ABSL_GUARDED_BY(mutex) = 1;

  std::shared_ptr<Inbox> Join() {
    absl::MutexLock lock(&mutex);
    auto inbox = std::make_shared<Inbox>(fmt::format("loopback:{}", next_number++));
    inboxes[inbox->address] = inbox;
    return inbox;
  }

  std::shared_ptr<Inbox> Find(std::string_view address) {
    absl::MutexLock lock(&mutex);
    const auto place = inboxes.find(std::string(address));
    return place == inboxes.end() ? nullptr : place->second;
  }

  void Leave(const std::shared_ptr<Inbox>& inbox) {
    std::vector<std::shared_ptr<Inbox>> others;
    {
      absl::MutexLock lock(&mutex);
      inboxes.erase(inbox->address);
      for (const auto& [address, other] : inboxes) others.push_back(other);
    }
    for (const auto& other : others) other->messages.PushAlways(PeerGone{inbox});
  }

  bool empty() {
    absl::MutexLock lock(&mutex);
    return inboxes.empty();
  }
};

namespace {

class LoopbackTransport final : public Transport {
 public:
  // The network, without its type, which is private.
  struct Network {
    std::function<std::shared_ptr<Inbox>(std::string_view address)> find;
    std::function<void(const std::shared_ptr<Inbox>& inbox)> leave;
  };

  LoopbackTransport(Network network, std::shared_ptr<Inbox> inbox, FrameReceiver* receiver)
      : network_(std::move(network)),
        inbox_(std::move(inbox)),
        receiver_(receiver),
        thread_([this] { Run(); }) {}

  ~LoopbackTransport() override {
    network_.leave(inbox_);
    inbox_->messages.Close();
    thread_.join();
  }

  std::string address() const override { return inbox_->address; }

  absl::Status OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                          StreamEnded ended) override {
    if (peer.empty()) return InvalidArgument("address \"\": must name a transport");
    const StreamKey key = {.stream = stream, .epoch = epoch};
    ASSIGN_OR_RETURN(const uint64_t serial, streams_->Open(key, std::move(ended)));
    // Known here before the peer is looked up, so that its PeerGone finds the stream.
    AddRoute(key, serial, peer);
    if (auto peer_inbox = network_.find(peer); peer_inbox != nullptr) {
      SetPeer(key, serial, std::move(peer_inbox));
    } else {
      inbox_->messages.PushAlways(
          StreamResult{key, serial, Unavailable("connection to {}: there is no such peer", peer)});
    }
    return absl::OkStatus();
  }

  absl::Status Post(uint64_t stream, uint64_t epoch, uint32_t layer, uint32_t block,
                    std::span<const std::byte> payload) override {
    const StreamKey key = {.stream = stream, .epoch = epoch};
    ASSIGN_OR_RETURN(const auto serial, streams_->Admit(key, payload.size()));
    if (!serial) return absl::OkStatus();
    Send(*serial,
         {.type = FrameType::kData,
          .stream = stream,
          .epoch = epoch,
          .layer = layer,
          .block = block,
          .payload_bytes = static_cast<uint32_t>(payload.size())},
         payload);
    return absl::OkStatus();
  }

  absl::Status FinishStream(uint64_t stream, uint64_t epoch) override {
    ASSIGN_OR_RETURN(const auto commit, streams_->Finish({.stream = stream, .epoch = epoch}));
    if (!commit) return absl::OkStatus();
    Send(commit->serial,
         {.type = FrameType::kCommit, .stream = stream, .epoch = epoch, .frames = commit->frames},
         {});
    return absl::OkStatus();
  }

  void AbortStream(uint64_t stream, uint64_t epoch) override {
    const StreamKey key = {.stream = stream, .epoch = epoch};
    const auto serial = streams_->Find(key);
    if (!serial) return;
    CloseRoute(key, *serial);
    inbox_->messages.PushAlways(
        StreamResult{key, *serial, Cancelled("stream {} was aborted", stream)});
  }

  uint64_t bytes_sent() const override { return sent_; }
  uint64_t bytes_received() const override { return received_; }

 private:
  struct Route {
    uint64_t serial = 0;
    std::string peer_address;
    std::shared_ptr<Inbox> peer;  // null when there is none of that address
    std::shared_ptr<PayloadGate> gate;
  };

  void AddRoute(StreamKey key, uint64_t serial, std::string_view peer_address) {
    absl::MutexLock lock(&mutex_);
    routes_[key] = {.serial = serial,
                    .peer_address = std::string(peer_address),
                    .gate = std::make_shared<PayloadGate>()};
  }

  // Without effect when the stream has ended meanwhile.
  void SetPeer(StreamKey key, uint64_t serial, std::shared_ptr<Inbox> peer) {
    absl::MutexLock lock(&mutex_);
    const auto place = routes_.find(key);
    if (place != routes_.end() && place->second.serial == serial) {
      place->second.peer = std::move(peer);
    }
  }

  // No payload of the stream is read once it returns.
  void CloseRoute(StreamKey key, uint64_t serial) {
    std::shared_ptr<PayloadGate> gate;
    {
      absl::MutexLock lock(&mutex_);
      const auto place = routes_.find(key);
      if (place == routes_.end() || place->second.serial != serial) return;
      gate = std::move(place->second.gate);
      routes_.erase(place);
    }
    gate->Close();
  }

  void Send(uint64_t serial, const FrameHeader& header, std::span<const std::byte> payload) {
    Route route;
    {
      absl::MutexLock lock(&mutex_);
      const auto place = routes_.find(KeyOf(header));
      if (place == routes_.end() || place->second.serial != serial) return;
      route = place->second;
    }
    if (route.peer == nullptr) return;
    sent_ += kFrameHeaderBytes + payload.size();
    route.peer->messages.PushAlways(
        IncomingFrame{inbox_, streams_, std::move(route.gate), serial, header, payload});
  }

  void Run() {
    while (!inbox_->messages.closed()) {
      for (Message& message : inbox_->messages.WaitAndDrain(kNoDeadline)) {
        if (inbox_->messages.closed()) break;
        std::visit([this](auto& typed) { Handle(typed); }, message);
      }
    }
    EndAll();
  }

  void EndAll() {
    absl::flat_hash_map<StreamKey, Route> routes;
    {
      absl::MutexLock lock(&mutex_);
      routes = std::exchange(routes_, {});
    }
    for (auto& [key, route] : routes) route.gate->Close();
    streams_->Close(Unavailable("the transport was shut down"));
  }

  void Handle(StreamResult& result) {
    CloseRoute(result.key, result.serial);
    streams_->End(result.key, result.serial, result.status);
  }

  void Handle(PeerGone& gone) {
    refused_.erase(gone.peer.get());
    std::vector<StreamResult> lost;
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& [key, route] : routes_) {
        if (route.peer_address != gone.peer->address) continue;
        lost.push_back({key, route.serial,
                        Unavailable("connection to {}: the peer closed it", route.peer_address)});
      }
    }
    for (StreamResult& result : lost) Handle(result);
  }

  void Handle(IncomingFrame& frame) {
    received_ += kFrameHeaderBytes + frame.payload.size();
    if (frame.header.type == FrameType::kCommit) {
      const StreamKey key = KeyOf(frame.header);
      const auto refused = refused_[frame.sender.get()].Find(key);
      refused_[frame.sender.get()].Erase(key);
      return Reply(frame, refused ? *refused : Commit(frame.header));
    }
    Land(frame);
    frame.sender_streams->Release(KeyOf(frame.header), frame.serial, 1);
  }

  absl::StatusCode Commit(const FrameHeader& header) {
    if (receiver_ == nullptr) return absl::StatusCode::kFailedPrecondition;
    return receiver_->Commit(header).code();
  }

  // The way of a payload through the wire: hashed by the sender, put in place, verified. The gate
  // is open only while the payload is read, not across the receiver's callbacks.
  void Land(IncomingFrame& frame) {
    FrameHeader& header = frame.header;
    if (refused_[frame.sender.get()].Find(KeyOf(header)) || !frame.gate->BeginRead()) return;
    header.payload_hash = Hash64(frame.payload);
    frame.gate->EndRead();
    if (receiver_ == nullptr) return Refuse(frame, absl::StatusCode::kFailedPrecondition);
    const auto landing = receiver_->Prepare(header);
    if (!landing.ok()) return Refuse(frame, landing.status().code());
    TANDEM_CHECK(landing->size() == header.payload_bytes, "a landing place of another size");
    absl::Status status;
    if (frame.gate->BeginRead()) {
      std::copy(frame.payload.begin(), frame.payload.end(), landing->begin());
      frame.gate->EndRead();
      if (Hash64(*landing) != header.payload_hash) {
        status = DataLoss("stream {}: layer {} block {} changed while it was sent", header.stream,
                          header.layer, header.block);
      }
    } else {
      status = Unavailable("stream {} ended while a payload was under way", header.stream);
    }
    receiver_->Landed(header, status);
    if (!status.ok()) Refuse(frame, status.code());
  }

  void Refuse(const IncomingFrame& frame, absl::StatusCode code) {
    refused_[frame.sender.get()].Add(KeyOf(frame.header), code);
    Reply(frame, code);
  }

  void Reply(const IncomingFrame& frame, absl::StatusCode code) {
    absl::Status status;
    if (code != absl::StatusCode::kOk) {
      status = MakeStatus(code, "{} rejected stream {}", address(), frame.header.stream);
    }
    frame.sender->messages.PushAlways(
        StreamResult{KeyOf(frame.header), frame.serial, std::move(status)});
  }

  const Network network_;
  const std::shared_ptr<Inbox> inbox_;
  FrameReceiver* const receiver_;
  const std::shared_ptr<SendStreams> streams_ = std::make_shared<SendStreams>(kMaxQueuedFrames);
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> received_{0};

  absl::Mutex mutex_;
  absl::flat_hash_map<StreamKey, Route> routes_ ABSL_GUARDED_BY(mutex_);

  // The thread's own: by sender.
  absl::flat_hash_map<const Inbox*, RefusedStreams> refused_;
  std::thread thread_;  // last: starts when all else stands
};

}  // namespace

LoopbackNetwork::LoopbackNetwork() : state_(std::make_shared<State>()) {}

LoopbackNetwork::~LoopbackNetwork() {
  TANDEM_CHECK(state_->empty(), "a loopback transport outlived its network");
}

std::unique_ptr<Transport> LoopbackNetwork::NewTransport(FrameReceiver* receiver) {
  State* state = state_.get();
  return std::make_unique<LoopbackTransport>(
      LoopbackTransport::Network{
          .find = [state](std::string_view address) { return state->Find(address); },
          .leave = [state](const std::shared_ptr<Inbox>& inbox) { state->Leave(inbox); }},
      state->Join(), receiver);
}

}  // namespace tandem
