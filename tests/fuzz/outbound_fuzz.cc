// What a receiver may answer a sender: frames with right headers of any type, in any order and of
// any content, cut anywhere, and bytes that are none; while streams are opened, posted to, finished
// and aborted, and the wire takes as much as it likes. However it goes: what is written are whole
// frames of a sender, payloads as they were posted, commits that count what went before them; each
// stream ends once; and no payload is read once its stream has ended or was aborted.
//
// The input: a byte each for whether payloads have a side channel, and for the size of the pieces
// that are read; then steps.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"
#include "tests/fuzz/memory_channel.h"
#include "tests/fuzz/steps.h"
#include "tests/support/lone_streams.h"
#include "transfer/framed/outbound.h"
#include "transfer/framed/payload_path.h"
#include "transfer/framed/side_channel_payloads.h"

namespace tandem {
namespace {

constexpr uint64_t kEpoch = 11;
constexpr uint64_t kConnection = 77;
constexpr uint64_t kStreams = 4;
constexpr size_t kMostPayloads = 64;  // of a stream

// Each byte of a payload; its bytes and its place say which it is.
std::byte ByteOf(const FrameHeader& header) {
  return static_cast<std::byte>(header.stream * 31 + header.layer * 7 + header.block);
}

// Reads what one connection writes, as the receiver would.
class WrittenFrames final : public FrameHandler {
 public:
  explicit WrittenFrames(bool has_side_channel) : has_side_channel_(has_side_channel) {}

  void Take(std::vector<std::byte>& bytes) {
    TANDEM_CHECK(reader_.Feed(bytes).ok(), "what was written is no frame");
    bytes.clear();
  }

 private:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override {
    TANDEM_CHECK(said_hello_ && !has_side_channel_,
                 "data before the hello, or beside a side channel");
    payload_bytes_ += header.payload_bytes;
    place_.resize(header.payload_bytes);
    return std::span<std::byte>(place_);
  }
  void Landed(const FrameHeader& header, const absl::Status& status) override {
    TANDEM_CHECK(status.ok(), "a payload with a wrong hash");
    TANDEM_CHECK(
        std::ranges::all_of(place_, [&header](std::byte byte) { return byte == ByteOf(header); }),
        "a payload that was not posted for its place");
  }
  absl::Status Control(const FrameHeader& header) override {
    if (header.type == FrameType::kHello) {
      TANDEM_CHECK(!said_hello_ && header.stream == kConnection, "a hello that is wrong");
      said_hello_ = true;
      return absl::OkStatus();
    }
    TANDEM_CHECK(said_hello_, "a frame before the hello");
    if (has_side_channel_ && header.type == FrameType::kAnnounce) return absl::OkStatus();
    if (has_side_channel_ && header.type == FrameType::kReference) {
      payload_bytes_ += header.payload_bytes;
      place_.assign(header.payload_bytes, ByteOf(header));
      return CheckPayloadHash(header, Hash64(place_));
    }
    TANDEM_CHECK(header.type == FrameType::kCommit || header.type == FrameType::kRenew,
                 "a frame that is not a sender's");
    TANDEM_CHECK(header.type != FrameType::kCommit || header.sent_bytes == payload_bytes_,
                 "a commit that says what was not sent");
    return absl::OkStatus();
  }

  const bool has_side_channel_;
  bool said_hello_ = false;
  uint64_t payload_bytes_ = 0;
  std::vector<std::byte> place_;
  FrameReader reader_{*this};
};

// Takes a few payloads at a time and announces them, or not.
class SmallSideChannel final : public SideChannel {
 public:
  enum class Announces : uint8_t { kNothing, kAll };
  explicit SmallSideChannel(Announces announces) : announces_(announces) {}

  Room room(uint64_t) override { return {.payloads = 3, .bytes = 1000}; }
  absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload> payloads) override {
    uint32_t bytes = 0;
    for (OfferedPayload& payload : payloads) {
      payload.hash = Hash64(payload.bytes);
      payload.handle = bytes;
      bytes += static_cast<uint32_t>(payload.bytes.size());
    }
    return announces_ == Announces::kAll ? bytes : 0;
  }
  bool keeps_copies() const override { return announces_ == Announces::kAll; }

 private:
  const Announces announces_;
};

// A sender with a few streams, and the receiver that answers what it likes.
class HostileReceiver {
 public:
  explicit HostileReceiver(Steps& steps) : steps_(steps) {
    const uint64_t which = steps.Take(1);
    const bool has_side_channel = which / 3 % 3 > 0;
    side_channel_.emplace(which / 3 % 3 == 1 ? SmallSideChannel::Announces::kNothing
                                             : SmallSideChannel::Announces::kAll);
    const size_t piece_bytes = 1 + steps.Take(1);
    peer_streams_ = std::make_unique<PeerStreams>(
        kConnection, SendRate(0, Duration::zero()), std::make_shared<Link>("peer", "memory"),
        open_.streams(),
        [this](OutgoingStream& stream, const absl::Status&) { StreamOver(stream); });
    line_.peer.piece_bytes = piece_bytes;
    line_.peer.room_bytes = 0;
    line_.peer.side_channel = has_side_channel ? &*side_channel_ : nullptr;
    line_.written = std::make_unique<WrittenFrames>(has_side_channel);
    auto channel = std::make_unique<MemoryChannel>(line_.peer);
    auto payloads =
        has_side_channel ? NewSideChannelOutbound(*channel) : direct_.NewOutbound(*channel, 1);
    line_.connection = std::make_unique<OutboundConnection>(
        *peer_streams_, std::move(channel), std::move(payloads), counters_,
        Timeouts{.connect = std::chrono::hours(1), .stall = std::chrono::hours(1)});
  }

  bool alive() const { return alive_; }

  void DoStep() {
    const uint64_t step = steps_.Take(1) % 12;
    switch (step) {
      case 0:
        return Open(AnyStream());
      case 1:
        return Post(AnyStream());
      case 2:
        return Finish(AnyStream());
      case 3:
        return Abort(AnyStream());
      case 4:
        return Answer(AnswerOf(FrameType::kAck));
      case 5:
        return Answer(AnswerOf(FrameType::kReject));
      case 6:
        return Answer({.type = FrameType::kCredit, .frames = steps_.Take(2)});
      case 7:
        return Answer(AnswerOf(FrameType::kResend));
      case 8:
        return Answer(AnyHeader());
      case 9:
        return AnswerRaw();
      case 10:
        return LetTimePass();
      default:
        return TakeBytes();
    }
  }

 private:
  struct Line {
    MemoryChannel::Peer peer;
    std::unique_ptr<WrittenFrames> written;
    std::unique_ptr<OutboundConnection> connection;
  };
  struct Stream {
    std::shared_ptr<OutgoingStream> stream;
    bool finished = false;
    std::vector<std::vector<std::byte>> payloads;  // given back once nobody may read them
  };

  StreamKey AnyStream() { return {.stream = steps_.Take(1) % kStreams, .epoch = kEpoch}; }

  void Open(StreamKey key) {
    if (streams_.contains(key.stream)) return;
    const Duration renew_every = std::chrono::milliseconds(steps_.Take(1) % 2 * 10);
    auto& stream = streams_[key.stream].stream;
    stream = open_.Open(key);
    TANDEM_CHECK(stream != nullptr, "a stream that is over is open");
    peer_streams_->Add(stream, renew_every, now_);
    TurnAll();
  }

  void Post(StreamKey key) {
    const uint64_t place = steps_.Take(1);
    const size_t bytes = 1 + steps_.Take(1) * 3;
    const auto stream = streams_.find(key.stream);
    if (stream == streams_.end() || stream->second.finished) return;
    auto& payloads = stream->second.payloads;
    std::vector<PostedExtent> extents;  // as many as come at once
    for (uint64_t i = 0; i <= place / 32 && payloads.size() < kMostPayloads; ++i) {
      const FrameHeader header = {.stream = key.stream,
                                  .layer = static_cast<uint32_t>(place % 4),
                                  .block = static_cast<uint32_t>((place / 4 + i) % 8)};
      payloads.emplace_back(bytes, ByteOf(header));
      extents.push_back({.layer = header.layer, .block = header.block, .payload = payloads.back()});
    }
    if (!extents.empty()) peer_streams_->Post(stream->second.stream, extents);
    TurnAll();
  }

  void Finish(StreamKey key) {
    const auto stream = streams_.find(key.stream);
    if (stream == streams_.end() || std::exchange(stream->second.finished, true)) return;
    peer_streams_->Finish(stream->second.stream, stream->second.payloads.size());
    TurnAll();
  }

  void Abort(StreamKey key) {
    const auto stream = streams_.find(key.stream);
    if (stream == streams_.end()) return;
    peer_streams_->Drop(*stream->second.stream);
    LetGo(*stream->second.stream);
    TurnAll();
  }

  void StreamOver(OutgoingStream& stream) {
    const auto known = streams_.find(stream.key().stream);
    TANDEM_CHECK(known != streams_.end() && known->second.stream.get() == &stream,
                 "a stream ended that was not open");
    LetGo(stream);
  }

  // Frees the payloads: a sanitizer sees who still reads one.
  void LetGo(OutgoingStream& stream) {
    const StreamKey key = stream.key();
    line_.connection->DropStream(key);
    open_.streams().End(stream, absl::OkStatus());
    streams_.erase(key.stream);
  }

  FrameHeader AnswerOf(FrameType type) {
    FrameHeader header = {.type = type, .stream = AnyStream().stream, .epoch = kEpoch};
    const uint64_t which = steps_.Take(1);
    header.block = static_cast<uint32_t>(which % 16);
    if (type == FrameType::kReject) header.code = static_cast<uint8_t>(1 + which / 16);
    if (type != FrameType::kResend) return header;
    header.layer = static_cast<uint32_t>(which % 4);
    header.block = static_cast<uint32_t>(which / 4 % 8);
    header.frames = 1 + steps_.Take(1) % 8;
    return header;
  }

  FrameHeader AnyHeader() {
    FrameHeader header;
    header.type = static_cast<FrameType>(steps_.Take(1));
    const uint64_t fields = steps_.Take(1);
    if ((fields & 1) != 0) header.code = static_cast<uint8_t>(steps_.Take(1));
    if ((fields & 2) != 0) header.stream = steps_.Take(8);
    if ((fields & 4) != 0) header.epoch = steps_.Take(8);
    if ((fields & 8) != 0) header.layer = static_cast<uint32_t>(steps_.Take(4));
    if ((fields & 16) != 0) header.block = static_cast<uint32_t>(steps_.Take(4));
    if ((fields & 32) != 0) header.payload_bytes = static_cast<uint32_t>(steps_.Take(4));
    if ((fields & 64) != 0) header.payload_hash = steps_.Take(8);
    if ((fields & 128) != 0) header.frames = steps_.Take(8);
    return header;
  }

  void Answer(const FrameHeader& header) {
    const auto bytes = EncodeFrameHeader(header);
    Say(bytes);
  }
  void AnswerRaw() { Say(std::as_bytes(steps_.TakeBytes(steps_.Take(1)))); }

  void Say(std::span<const std::byte> bytes) {
    auto& incoming = line_.peer.incoming;
    incoming.insert(incoming.end(), bytes.begin(), bytes.end());
    TurnAll();
  }

  void LetTimePass() {
    now_ += std::chrono::milliseconds(steps_.Take(1));
    if (peer_streams_->wake_at() <= now_) peer_streams_->OnTimer(now_);
    TurnAll();
  }

  void TakeBytes() {
    steps_.Take(1);  // means nothing any more; the inputs of the corpus have it
    line_.peer.room_bytes += steps_.Take(2);
    TurnAll();
  }

  // Until nothing is left to do, as the loop does.
  void TurnAll() {
    do {
      peer_streams_->queue().ClearNews();
      const absl::StatusOr<Turn> turn = line_.connection->Advance();
      line_.written->Take(line_.peer.outgoing);
      alive_ = alive_ && turn.ok();
    } while (alive_ && peer_streams_->queue().has_news());
  }

  Steps& steps_;
  std::optional<SmallSideChannel> side_channel_;
  TransportCounters counters_;
  LoneStreams open_;
  DirectPayloads direct_;
  std::unique_ptr<PeerStreams> peer_streams_;
  Line line_;
  std::map<uint64_t, Stream> streams_;
  TimePoint now_ = std::chrono::steady_clock::now();
  bool alive_ = true;
};

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  Steps steps(std::span(data, size));
  HostileReceiver receiver(steps);
  while (receiver.alive() && !steps.done()) receiver.DoStep();
  return 0;
}
