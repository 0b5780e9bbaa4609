#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"
#include "tests/fuzz/hostile_headers.h"
#include "tests/fuzz/landing_worker.h"
#include "tests/fuzz/memory_channel.h"
#include "tests/fuzz/peer_memory.h"
#include "tests/fuzz/steps.h"
#include "transfer/framed/inbound.h"

namespace tandem::inbound_fuzz {

inline constexpr size_t kConnections = 3;
inline constexpr uint64_t kWindow = 4096;

// Answers are frames of a receiver.
class AnswerReader final : public FrameHandler {
 public:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader&) override {
    TANDEM_CHECK(false, "a receiver sent data");
    return Cancelled("");
  }
  void Landed(const FrameHeader&, const absl::Status&) override {}
  absl::Status Control(const FrameHeader& header) override {
    TANDEM_CHECK(header.type == FrameType::kAck || header.type == FrameType::kReject ||
                     header.type == FrameType::kCredit || header.type == FrameType::kResend,
                 "an answer of a type that is none");
    return absl::OkStatus();
  }
};

// The connections of hostile senders, and what the loop does with them.
class HostileSenders {
 public:
  HostileSenders(Worker& worker, Steps& steps, bool has_side_channel)
      : worker_(worker), steps_(steps), headers_(steps), has_side_channel_(has_side_channel) {
    const size_t piece_bytes = 1 + 3 * steps.Take(1);
    const size_t read_ahead_bytes = 4 * steps.Take(1);
    for (Line& line : lines_) {
      line.peer.piece_bytes = piece_bytes;
      line.peer.read_ahead_bytes = has_side_channel ? 0 : read_ahead_bytes;
      line.peer.side_channel = has_side_channel ? &side_channel_ : nullptr;
    }
  }

  void DoStep() {
    Line& line = lines_[current_];
    switch (steps_.Take(1) % 12) {
      case 0:
        return SayData(line, Content::kHonest);
      case 1:
        return SayData(line, Content::kDamaged);
      case 2:
        return SayPayload(line, FrameType::kData,
                          headers_.HeaderOf(FrameType::kData, steps_.Take(2)));
      case 3:
        return SayPayload(line, FrameType::kReference, headers_.AnyReference());
      case 4:
        return Say(line, {.type = FrameType::kAnnounce,
                          .payload_bytes = static_cast<uint32_t>(steps_.Take(2))});
      case 5:
        return SayCommit(line);
      case 6:
        return Say(line, headers_.HeaderOf(FrameType::kRenew, 0));
      case 7:
        return SayHello(line);
      case 8:
        return Say(line, headers_.AnyHeader());
      case 9:
        return SayRaw(line);
      case 10:
        return Engine();
      default:
        current_ = steps_.Take(1) % kConnections;
    }
  }

  void CloseAll() {
    for (Line& line : lines_) Close(line, Unavailable("the end of the input"));
  }

 private:
  enum class Content : uint8_t { kHonest, kDamaged };

  struct Line {
    MemoryChannel::Peer peer;
    std::unique_ptr<InboundConnection> connection;
  };

  void SayData(Line& line, Content content) {
    FrameHeader header =
        headers_.ExtentHeader(has_side_channel_ ? FrameType::kReference : FrameType::kData);
    const std::byte byte = ByteOf(header.stream, header.layer);
    std::vector<std::byte> payload(header.payload_bytes, byte);
    header.payload_hash = Hash64(payload);
    const bool damaged = content == Content::kDamaged;
    if (has_side_channel_) {
      header.payload_handle =
          (std::to_integer<uint64_t>(byte) - 1) * kLargestExtent + (damaged ? 1 : 0);
      header.payload_hash ^= damaged ? 1 : 0;
      return Say(line, header);
    }
    if (damaged) payload[steps_.Take(1) % payload.size()] ^= std::byte{0x40};
    SayWith(line, header, payload);
  }

  // With a right hash: of what an honest sender of this extent would say.
  void SayPayload(Line& line, FrameType type, FrameHeader header) {
    const size_t bytes = std::min<size_t>(header.payload_bytes, 2 * kLargestExtent);
    const std::vector<std::byte> payload(bytes, ByteOf(header.stream, header.layer));
    header.payload_bytes = static_cast<uint32_t>(bytes);
    header.payload_hash = Hash64(payload);
    if (type == FrameType::kReference) return Say(line, header);
    SayWith(line, header, payload);
  }

  void SayCommit(Line& line) {
    FrameHeader header = headers_.HeaderOf(FrameType::kCommit, 0);
    header.block = static_cast<uint32_t>(steps_.Take(1));
    header.frames = header.block % 4 == 3 ? steps_.Take(1) : FramesOf(header.stream);
    header.sent_bytes = header.block % 8 == 7 ? steps_.Take(8) : line.peer.outgoing.size();
    Say(line, header);
  }

  static uint64_t FramesOf(uint64_t stream) {
    return stream == 5 ? kLayers : uint64_t{2} * kLayers;
  }

  void SayHello(Line& line) {
    const uint64_t which = steps_.Take(1);
    Say(line, {.type = FrameType::kHello,
               .stream = 1 + which / 64,
               .layer = static_cast<uint32_t>(which % 4),
               .block = static_cast<uint32_t>(which / 4 % 16 + 1)});
  }

  void SayRaw(Line& line) {
    const auto raw = std::as_bytes(steps_.TakeBytes(steps_.Take(1)));
    line.peer.incoming.insert(line.peer.incoming.end(), raw.begin(), raw.end());
    Turn(line);
  }

  void Say(Line& line, const FrameHeader& header) { SayWith(line, header, {}); }
  void SayWith(Line& line, const FrameHeader& header, std::span<const std::byte> payload) {
    const auto bytes = EncodeFrameHeader(header);
    auto& incoming = line.peer.incoming;
    incoming.insert(incoming.end(), bytes.begin(), bytes.end());
    incoming.insert(incoming.end(), payload.begin(), payload.end());
    Turn(line);
  }

  void Engine() {
    const uint64_t which = steps_.Take(1);
    Opened& opened = worker_.opened()[which % worker_.opened().size()];
    switch (which / 8 % 8) {
      case 0:
        return worker_.Close(opened);
      case 1:
        return worker_.Renew(opened);
      case 2:
        return worker_.Wait(kLease / 3);
      case 3:
        return worker_.Wait(kLease);
      case 4:
        if (which >= 0xE0) worker_.ShutDown();
        return;
      default:
        return Close(lines_[current_], Unavailable("cut"));
    }
  }

  void Turn(Line& line) {
    if (line.connection == nullptr) Accept(line);
    const absl::StatusOr<tandem::Turn> turn = line.connection->Advance();
    AnswerReader answers;
    FrameReader reader(answers);
    TANDEM_CHECK(reader.Feed(line.peer.outgoing).ok() && !reader.mid_frame(),
                 "answers that are no frames");
    line.peer.outgoing.clear();
    worker_.Listen();
    if (!turn.ok()) Close(line, turn.status());
  }

  void Accept(Line& line) {
    auto channel = std::make_unique<MemoryChannel>(line.peer);
    auto payloads = worker_.path().NewInbound(*channel);
    line.connection = std::make_unique<InboundConnection>(
        std::move(channel), std::move(payloads), ReceiveCredit(kWindow),
        InboundConnection::Context{
            .receiver = worker_.receiver(),
            .read_ahead = read_ahead_,
            .counters = counters_,
            .timeouts = {.connect = std::chrono::hours(1), .stall = std::chrono::hours(1)},
            .greeted = [] {}});
  }

  void Close(Line& line, const absl::Status& status) {
    line.peer.incoming.clear();
    if (line.connection == nullptr) return;
    line.connection->OnClosed(status);
    line.connection.reset();
    worker_.Listen();
  }

  Worker& worker_;
  Steps& steps_;
  HostileHeaders headers_;
  const bool has_side_channel_;
  SharedMemoryOfAPeer side_channel_;
  std::vector<std::byte> read_ahead_ = std::vector<std::byte>(1024);
  TransportCounters counters_;
  std::array<Line, kConnections> lines_;
  size_t current_ = 0;
};

}  // namespace tandem::inbound_fuzz
