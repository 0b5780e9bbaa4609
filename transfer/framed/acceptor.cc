#include "transfer/framed/acceptor.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tandem {
namespace {

// The pause in accepting after a medium had no room for another connection.
constexpr std::chrono::milliseconds kAcceptPause{200};
// The share of connections that may be unauthenticated is one in this number.
constexpr int kUnauthenticatedShare = 4;
// How often a sender that waits for an answer gets one within its answer timeout.
constexpr int kAnswersInTime = 5;

}  // namespace

Acceptor::Acceptor(const FramedOptions& options, Medium& medium, FrameReceiver& receiver,
                   PayloadPath& path, ConnectionTable& table, TransportCounters& counters)
    : options_(options),
      medium_(medium),
      receiver_(receiver),
      path_(path),
      table_(table),
      counters_(counters),
      read_ahead_(kReadAheadBytes) {
  table_.Watch(medium_.listener_fd(), ConnectionTable::kListenerId);
}

void Acceptor::Accept() {
  while (true) {
    absl::StatusOr<std::unique_ptr<ByteChannel>> channel = medium_.Accept();
    if (absl::IsPermissionDenied(channel.status())) {
      CountRefused(counters_.unauthenticated, channel.status().message());
      continue;
    }
    if (!channel.ok()) return Pause(channel.status());
    if (*channel == nullptr) return;
    if (MakeRoomForOneMore()) {
      Add(*std::move(channel));
    } else {
      CountRefused(refused_for_room_, fmt::format("there are {} already", num_connections_));
    }
  }
}

void Acceptor::Add(std::unique_ptr<ByteChannel> channel) {
  const uint64_t id = table_.NewId();
  auto payloads = path_.NewInbound(*channel);
  const ReceiveCredit credit(options_.credit_window_bytes,
                             options_.answer_timeout / kAnswersInTime);
  auto connection = std::make_unique<InboundConnection>(
      std::move(channel), std::move(payloads), credit,
      InboundConnection::Context{
          .receiver = receiver_,
          .read_ahead = read_ahead_,
          .counters = counters_,
          .timeouts = {.connect = options_.connect_timeout, .stall = options_.stall_timeout},
          .greeted = [this, id] { unauthenticated_.erase(id); }});
  ++num_connections_;
  unauthenticated_.insert(id);
  table_.Add(id, std::move(connection), "(inbound)", [this, id](const absl::Status&) {
    --num_connections_;
    unauthenticated_.erase(id);
  });
  table_.Advance(id);
}

// Makes room for a connection, so that peers which connect and say nothing take no place from those
// that say hello. Each of the silent ones is read once more before it gives way, because its hello
// may have come while others connected.
bool Acceptor::MakeRoomForOneMore() {
  const auto most =
      static_cast<size_t>(std::max(options_.max_connections / kUnauthenticatedShare, 1));
  const std::vector<uint64_t> oldest_first(unauthenticated_.begin(), unauthenticated_.end());
  size_t left = oldest_first.size();
  for (const uint64_t id : oldest_first) {
    if (left < most && num_connections_ < options_.max_connections) break;
    table_.Advance(id);
    if (IsUnauthenticated(id)) {
      CloseUnauthenticated(id, Unavailable("it has said nothing, and others came"));
    }
    --left;
  }
  return num_connections_ < options_.max_connections;
}

void Acceptor::CloseUnauthenticated(uint64_t id, const absl::Status& status) {
  CountRefused(counters_.unauthenticated, status.message());
  table_.CloseQuietly(id, status);
}

// Refused peers try again, and a line for each try would fill the disk: only the first, second,
// fourth and so on is logged.
void Acceptor::CountRefused(std::atomic<uint64_t>& of_the_kind, absl::string_view reason) {
  ++counters_.closed;
  if (const uint64_t so_far = ++of_the_kind; std::has_single_bit(so_far)) {
    LogWarn("transfer connection refused so_far={} reason=\"{}\"", so_far, std::string(reason));
  }
}

// Stops watching the listener for a while. The connection stays in the backlog and the listener
// readable, so the loop would spin otherwise.
void Acceptor::Pause(const absl::Status& status) {
  LogWarn("transfer cannot accept reason=\"{}\"", std::string(status.message()));
  accept_again_ = std::chrono::steady_clock::now() + kAcceptPause;
  table_.Unwatch(medium_.listener_fd());
}

void Acceptor::ResumeIfDue(TimePoint now) {
  if (accept_again_ > now) return;
  accept_again_ = kNoDeadline;
  table_.Watch(medium_.listener_fd(), ConnectionTable::kListenerId);
}

}  // namespace tandem
