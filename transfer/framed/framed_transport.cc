#include "transfer/framed/framed_transport.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "transfer/framed/acceptor.h"
#include "transfer/framed/command_queue.h"
#include "transfer/framed/payload_path.h"
#include "transfer/framed/peers.h"
#include "transfer/framed/side_channel_payloads.h"
#include "transfer/framed/staged_payloads.h"

namespace tandem {
namespace {

absl::StatusOr<std::unique_ptr<PayloadPath>> NewPath(const FramedOptions& options,
                                                     bool has_side_channels,
                                                     FrameReceiver* receiver) {
  if (has_side_channels) {
    TANDEM_CHECK(options.device != nullptr, "side channels lead to the memory of a device");
    return NewSideChannelPayloads(*options.device, OrNoReceiver(receiver));
  }
  if (options.device == nullptr || options.device->is_host()) {
    return std::make_unique<DirectPayloads>();
  }
  return NewStagedPayloads(*options.device, options.staged_payload_bytes, options.staging_bytes,
                           receiver);
}

// One thread, the loop, does all I/O and owns the connections with all that is in them; other
// threads reach it through commands alone. When there is nothing to do it sleeps in epoll_wait,
// except for two turns a second.
class FramedTransport final : public Transport, private StreamOwner {
 public:
  FramedTransport(const FramedOptions& options, UniqueFd wake, UniqueFd epoll,
                  std::unique_ptr<Medium> medium, std::unique_ptr<PayloadPath> path,
                  FrameReceiver& receiver)
      : options_(options),
        medium_(std::move(medium)),
        path_(std::move(path)),
        links_(medium_->name()),
        commands_(std::move(wake)),
        table_(std::move(epoll)),
        acceptor_(options_, *medium_, receiver, *path_, table_, counters_),
        peers_(options_, *medium_, *path_, table_, streams_, links_, counters_) {
    table_.Watch(commands_.wake_fd(), ConnectionTable::kWakeId);
    thread_ = std::thread([this] { Run(); });
  }
  // Closes the connections, ends the streams with UNAVAILABLE, and joins the loop's thread.
  ~FramedTransport() override {
    commands_.Stop();
    thread_.join();
  }

  std::string address() const override { return medium_->address(); }
  absl::Status MayReach(std::string_view peer) const override { return medium_->MayReach(peer); }

  absl::StatusOr<StreamHandle> OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                                          Duration renew_every, StreamEnded ended) override {
    RETURN_IF_ERROR(medium_->MayReach(peer));
    const StreamKey key = {.stream = stream, .epoch = epoch};
    const auto max_frames = static_cast<uint64_t>(options_.max_queued_frames);
    StreamOwner& owner = *this;
    auto opened =
        std::make_shared<OutgoingStream>(key, max_frames, LinkTo(peer), owner, std::move(ended));
    RETURN_IF_ERROR(streams_.Add(opened));
    Queue(OpenCommand{.stream = opened, .peer = std::string(peer), .renew_every = renew_every});
    return opened;
  }

  std::vector<LinkStats> links() const override { return links_.stats(); }
  TransportStats stats() const override {
    return {.refused = {.malformed = counters_.malformed,
                        .corrupted = counters_.corrupted,
                        .stale = counters_.stale,
                        .unauthenticated = counters_.unauthenticated,
                        .closed = counters_.closed},
            .buffer_bytes = medium_->buffer_bytes() + kReadAheadBytes + path_->buffer_bytes(),
            .bytes_sent = counters_.sent,
            .bytes_received = counters_.received};
  }

 private:
  SendLink LinkTo(std::string_view peer) {
    const bool on_host = options_.device == nullptr || options_.device->is_host();
    return {.takes_any_memory = on_host && medium_->carries_any_memory(),
            .gigabytes_per_second = links_.Find(peer)->stats().gigabytes_per_second};
  }
  absl::Status CheckPayload(uint64_t stream, std::span<const std::byte> payload) const override {
    RETURN_IF_ERROR(path_->CheckPayload(stream, payload.size()));
    return medium_->MayCarry(payload);
  }
  void Queue(StreamCommand command) override { commands_.Push(std::move(command)); }
  bool IsLoopThread() const override { return std::this_thread::get_id() == thread_.get_id(); }
  void AbortNow(OutgoingStream& stream) override { peers_.Abort(stream); }

  // The loop and its parts, on the transport's thread.
  void Run();
  int WaitMilliseconds() const;
  void Handle(uint64_t id);
  void AdvanceThoseWithoutRoom();
  void CloseOverdue();
  void Shutdown();

  const FramedOptions options_;
  const std::unique_ptr<Medium> medium_;
  const std::unique_ptr<PayloadPath> path_;
  OpenStreams streams_;
  Links links_;
  TransportCounters counters_;
  CommandQueue commands_;
  ConnectionTable table_;
  Acceptor acceptor_;
  Peers peers_;
  std::thread thread_;  // last: it starts when all other members are ready
};

void FramedTransport::Run() {
  NameThisThread(fmt::format("kv-{}", medium_->name()).c_str());
  while (!commands_.stopping()) {
    if (options_.turns != nullptr && medium_->health().ok()) {
      options_.turns->fetch_add(1, std::memory_order_relaxed);
    }
    const int most_ms = WaitMilliseconds();
    const int wait_ms = most_ms != 0 && commands_.FallAsleep() ? most_ms : 0;
    for (const uint64_t id : table_.Wait(wait_ms)) Handle(id);
    for (StreamCommand& command : commands_.TakeAll()) peers_.Execute(command);
    peers_.RunTimers(std::chrono::steady_clock::now());
    table_.AdvanceUnfinished();
    peers_.EndStreams();
    CloseOverdue();
    AdvanceThoseWithoutRoom();
  }
  Shutdown();
}

int FramedTransport::WaitMilliseconds() const {
  // A connection may have a turn at once, because a callback may have dropped a stream whose
  // payloads took up room.
  if (table_.has_unfinished() || path_->has_turn()) return 0;
  const TimePoint now = std::chrono::steady_clock::now();
  const TimePoint earliest = std::min({table_.earliest_deadline(), acceptor_.accept_again(),
                                       peers_.next_timer(now), now + kLongestSleep});
  // The time is rounded up, so that the loop does not spin through the last millisecond.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(earliest - now).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

void FramedTransport::Handle(uint64_t id) {
  if (id == ConnectionTable::kWakeId) return commands_.ClearWake();
  if (id == ConnectionTable::kListenerId) return acceptor_.Accept();
  table_.Advance(id);
  peers_.EndStreams();
}

void FramedTransport::AdvanceThoseWithoutRoom() {
  while (const std::optional<uint64_t> id = path_->BeginTurn()) {
    table_.Advance(*id);
    path_->EndTurn();
  }
  peers_.EndStreams();
}

void FramedTransport::CloseOverdue() {
  const TimePoint now = std::chrono::steady_clock::now();
  for (const uint64_t id : table_.Overdue(now)) {
    if (acceptor_.IsUnauthenticated(id)) {
      acceptor_.CloseUnauthenticated(id, Unavailable("it has said nothing for too long"));
    } else {
      table_.Close(id, Unavailable("timed out: nothing moved"));
    }
  }
  peers_.CloseUnanswering(now);
  acceptor_.ResumeIfDue(now);
  peers_.EndStreams();
}

void FramedTransport::Shutdown() {
  const absl::Status status = Unavailable("the transport was shut down");
  table_.CloseAll(status);
  peers_.EndStreams();
  streams_.Close(status);
  // A thread that aborted a stream meanwhile waits for this notification.
  for (StreamCommand& command : commands_.TakeAll()) {
    if (auto* abort = std::get_if<AbortCommand>(&command)) abort->done->Notify();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> NewFramedTransport(const FramedOptions& options,
                                                              std::unique_ptr<Medium> medium,
                                                              FrameReceiver* receiver) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll.valid() || !wake.valid()) {
    return Unavailable("cannot make an epoll loop: {}", ErrnoMessage(errno));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<PayloadPath> path,
                   NewPath(options, medium->has_side_channels(), receiver));
  return std::make_unique<FramedTransport>(options, std::move(wake), std::move(epoll),
                                           std::move(medium), std::move(path),
                                           OrNoReceiver(receiver));
}

}  // namespace tandem
