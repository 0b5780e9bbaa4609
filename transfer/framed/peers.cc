#include "transfer/framed/peers.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// When a stream is aborted, a peer that has been silent for this fraction of the answer timeout is
// taken for the reason.
constexpr int kSilentAtAbort = 5;

absl::Status NoAnswer(PeerStreams& streams, TimePoint now) {
  return Unavailable("the peer has answered nothing for {:.1f} s, {} bytes are on their way",
                     std::chrono::duration<double>(streams.answer_timer().silence(now)).count(),
                     streams.queue().in_flight());
}

}  // namespace

Peers::Peers(const FramedOptions& options, Medium& medium, PayloadPath& path,
             ConnectionTable& table, OpenStreams& streams, Links& links,
             TransportCounters& counters)
    : options_(options),
      medium_(medium),
      path_(path),
      table_(table),
      streams_(streams),
      links_(links),
      counters_(counters) {}

void Peers::Execute(StreamCommand& command) {
  if (auto* open = std::get_if<OpenCommand>(&command)) return Open(*open);
  if (auto* abort = std::get_if<AbortCommand>(&command)) {
    Abort(*abort->stream);
    return abort->done->Notify();
  }
  if (auto* post = std::get_if<PostCommand>(&command)) {
    PeerStreams* const peer = post->stream->progress.peer;
    if (peer != nullptr) peer->Post(post->stream, post->extents);
    return;
  }
  const auto& finish = std::get<FinishCommand>(command);
  PeerStreams* const peer = finish.stream->progress.peer;
  if (peer != nullptr) peer->Finish(finish.stream, finish.frames);
}

void Peers::Open(const OpenCommand& command) {
  const std::shared_ptr<OutgoingStream>& stream = command.stream;
  if (streams_.Find(stream->key()) != stream) return;  // the stream was aborted meanwhile
  const absl::StatusOr<Peer*> peer = ConnectTo(command.peer);
  if (!peer.ok()) {
    ended_.push_back(
        {stream, Annotate(peer.status(), fmt::format("connection to {}", command.peer))});
    return;
  }
  (*peer)->streams->Add(stream, command.renew_every, std::chrono::steady_clock::now());
}

absl::StatusOr<Peers::Peer*> Peers::ConnectTo(const std::string& name) {
  if (const auto place = peers_.find(name); place != peers_.end()) return &place->second;
  ASSIGN_OR_RETURN(std::unique_ptr<ByteChannel> channel, medium_.Connect(name));
  Peer& peer = peers_[name];
  // The number of the connection is random, so that the receiver's log can tell connections apart,
  // and never 0.
  const uint64_t number = uint64_t{random_()} << 32 | random_() | 1;
  peer.streams = std::make_unique<PeerStreams>(
      number, SendRate(options_.max_bytes_per_second, options_.rate_burst), links_.Find(name),
      streams_, [this, name](OutgoingStream& stream, const absl::Status& status) {
        // The stream's payloads are released before its end is reported.
        peers_.at(name).connection->DropStream(stream.key());
        ended_.push_back({stream.shared_from_this(), status});
      });
  peer.id = table_.NewId();
  auto payloads = path_.NewOutbound(*channel, peer.id);
  auto connection = std::make_unique<OutboundConnection>(
      *peer.streams, std::move(channel), std::move(payloads), counters_,
      Timeouts{.connect = options_.connect_timeout, .stall = options_.stall_timeout});
  peer.connection = connection.get();
  table_.Add(peer.id, std::move(connection), name,
             [this, name](const absl::Status& status) { OnClosed(name, status); });
  table_.WantTurn(peer.id);
  return &peer;
}

void Peers::Abort(OutgoingStream& stream) {
  const absl::Status status = StatusOfAborted(stream);
  if (stream.progress.peer != nullptr) {
    Peer& peer = peers_.at(stream.progress.peer->peer());
    peer.streams->Drop(stream);
    peer.connection->DropStream(stream.key());
  }
  streams_.End(stream, status);
}

// The status of a stream that is aborted. A caller may give a stream up long before this side gives
// up a connection whose peer is silent, so the silence may be the reason.
absl::Status Peers::StatusOfAborted(const OutgoingStream& stream) {
  const TimePoint now = std::chrono::steady_clock::now();
  PeerStreams* const peer = stream.progress.peer;
  if (peer == nullptr ||
      peer->answer_timer().silence(now) <= options_.answer_timeout / kSilentAtAbort) {
    return Cancelled("stream {} was aborted", stream.key().stream);
  }
  peer->link().Count(&LinkStats::streams_failed);
  return Annotate(NoAnswer(*peer, now), fmt::format("connection to {}", peer->peer()));
}

// Ends the streams of a connection that has ended. Peers that disagree (TLS, another version) would
// do so again at once, so that error stays; any other end is a loss, and UNAVAILABLE. A medium with
// side channels that does not suit the two peers (their devices cannot reach each other, their
// versions of NCCL differ) is a loss as well, because another medium may suit them.
void Peers::OnClosed(const std::string& name, const absl::Status& status) {
  const auto node = peers_.extract(name);
  PeerStreams& streams = *node.mapped().streams;
  const bool disagree = absl::IsFailedPrecondition(status) && !medium_.has_side_channels();
  const absl::Status lost =
      Annotate(disagree ? status : Unavailable("{}", std::string(status.message())),
               fmt::format("connection to {}", name));
  for (const auto& stream : streams.streams()) {
    streams.link().Count(&LinkStats::streams_failed);
    ended_.push_back({stream, lost});
  }
}

void Peers::EndStreams() {
  while (!ended_.empty()) {
    for (const EndedStream& ended : std::exchange(ended_, {})) {
      streams_.End(*ended.stream, ended.status);
    }
  }
}

void Peers::RunTimers(TimePoint now) {
  for (auto& [name, peer] : peers_) {
    if (peer.streams->wake_at() <= now) peer.streams->OnTimer(now);
    if (!peer.streams->queue().has_news()) continue;
    peer.streams->queue().ClearNews();
    table_.WantTurn(peer.id);
  }
}

TimePoint Peers::AnswerDeadline(const Peer& peer) const {
  const TimePoint since = peer.streams->answer_timer().since();
  return since == kNoDeadline ? kNoDeadline : since + options_.answer_timeout;
}

TimePoint Peers::next_timer(TimePoint now) const {
  TimePoint earliest = kNoDeadline;
  for (const auto& [name, peer] : peers_) {
    if (peer.streams->queue().has_news()) return now;
    earliest = std::min({earliest, peer.streams->wake_at(), AnswerDeadline(peer)});
  }
  return earliest;
}

void Peers::CloseUnanswering(TimePoint now) {
  std::vector<std::string> overdue;
  for (const auto& [name, peer] : peers_) {
    if (AnswerDeadline(peer) <= now) overdue.push_back(name);
  }
  for (const std::string& name : overdue) {
    // An answer may have come while this process stood still, so the connection is read once more.
    table_.Advance(peers_.at(name).id);
    const auto peer = peers_.find(name);
    if (peer == peers_.end() || AnswerDeadline(peer->second) > now) continue;
    table_.Close(peer->second.id, NoAnswer(*peer->second.streams, now));
  }
}

}  // namespace tandem
