// What peers may say on the connections that they make: frames with right headers of any type, in
// any order and of any content, cut anywhere, and bytes that are none. Behind the connections is
// the landing zone of a decode worker with reservations of each sort, of which the engine may be
// rid at any time. However it goes: a reservation is complete only when all of it is there, as its
// sender hashed it; nothing is written anywhere else; and nothing is being written in the end.
//
// The input: a byte each for the way of landings, the size of the pieces that are read, and what is
// read ahead; then steps.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"
#include "engine/handoff/landing_zone.h"
#include "kernels/registry.h"
#include "kvstore/kv_convert.h"
#include "tests/fuzz/memory_channel.h"
#include "tests/fuzz/steps.h"
#include "tests/support/fake_clock.h"
#include "transfer/framed/inbound.h"
#include "transfer/framed/side_channel_payloads.h"
#include "transfer/framed/staged_payloads.h"

namespace tandem {
namespace {

constexpr uint64_t kEpoch = 11;
constexpr Duration kLease = std::chrono::seconds(3);
constexpr int32_t kLayers = 2;
constexpr int32_t kPoolBlocks = 10;
constexpr std::byte kUntouched{0xEE};
constexpr size_t kConnections = 3;
constexpr size_t kLargestExtent = 512;
constexpr uint64_t kWindow = 4096;

const KvLayout kLayout = {
    .num_layers = kLayers, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8};
const KvLayout kWideLayout = {
    .num_layers = kLayers, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 16};

// Of an honest sender each byte of a layer is the same, whatever the layout.
std::byte ByteOf(uint64_t stream, uint32_t layer) {
  return static_cast<std::byte>(1 + stream % 4 * kLayers + layer % kLayers);
}

struct Opened {
  ReservationId id;
  LandingPlan plan;
  bool closed = false;
  bool complete = false;  // the engine was told so
};

// One of the pool's layout, one that has part of its prompt cached, one that is to be converted.
std::vector<Opened> Reservations() {
  return {
      {.id = ReservationId(3), .plan = {.blocks = {5, 2}, .layout = kLayout, .prompt_tokens = 16}},
      {.id = ReservationId(4),
       .plan = {.blocks = {7, 1, 3}, .layout = kLayout, .prompt_tokens = 20, .cached_tokens = 8}},
      {.id = ReservationId(5),
       .plan = {.blocks = {0, 8}, .layout = kWideLayout, .prompt_tokens = 16}}};
}

// Memory that a peer shares: for each byte of an honest sender an extent of it.
class SharedMemoryOfAPeer final : public SideChannel {
 public:
  static constexpr size_t kExtents = 8;

  SharedMemoryOfAPeer() : memory_(kExtents * kLargestExtent) {
    for (size_t i = 0; i < memory_.size(); ++i) {
      memory_[i] = static_cast<std::byte>(1 + i / kLargestExtent);
    }
  }

  absl::Status Expect(uint32_t bytes) override {
    if (bytes <= memory_.size()) return absl::OkStatus();
    return InvalidArgument("more than there is");
  }
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t place, size_t bytes) const override {
    if (place > memory_.size() || bytes > memory_.size() - place) {
      return InvalidArgument("outside of the memory");
    }
    return std::span(memory_).subspan(place, bytes);
  }

 private:
  std::vector<std::byte> memory_;
};

const Backend& Cpu() {
  static const Backend cpu = *OpenBackend("cpu", {.num_threads = 1});
  return cpu;
}

// A decode worker as far as frames see it.
class Worker {
 public:
  enum class Ways : uint8_t { kDirect, kStaged, kSideChannel };

  explicit Worker(Ways ways) {
    Device& device = *Cpu().device;
    if (ways == Ways::kDirect) path_ = std::make_unique<DirectPayloads>();
    if (ways == Ways::kStaged) {
      path_ = *StagedPayloads::Create(device, kLargestExtent, 2 * 4096, &zone_);
    }
    if (ways == Ways::kSideChannel) path_ = *SideChannelPayloads::Create(device, zone_);
    for (const Opened& opened : opened_) zone_.Open(opened.id, opened.plan);
  }

  PayloadPath& path() { return *path_; }
  FrameReceiver& receiver() { return zone_; }
  std::vector<Opened>& opened() { return opened_; }

  void Close(Opened& opened) {
    if (std::exchange(opened.closed, true)) return;
    if (zone_.Close(opened.id) == LandingZone::Closing::kDraining) ++draining_;
  }
  void Renew(const Opened& opened) {
    if (!opened.closed) zone_.Renew(opened.id);
  }
  void Wait(Duration duration) { clock_.Advance(duration); }
  void ShutDown() { zone_.ShutDown(); }

  void Listen() {
    for (const Message& message : inbox_.Drain()) {
      if (const auto* arrived = std::get_if<KvArrivedMessage>(&message)) Arrived(*arrived);
      if (std::holds_alternative<KvDrainedMessage>(message)) --draining_;
    }
  }

  // Once no connection is left.
  void ExpectNothingUnderWay() {
    Listen();
    TANDEM_CHECK(draining_ == 0, "a landing was not drained");
    for (Opened& opened : opened_) {
      if (!opened.closed) Close(opened);
      TANDEM_CHECK(draining_ == 0, "a place was not given back");
    }
    ExpectUntouched();
  }

 private:
  void Arrived(const KvArrivedMessage& arrived) {
    if (!arrived.status.ok()) return;
    const auto opened = std::ranges::find_if(
        opened_, [&arrived](const Opened& one) { return one.id == arrived.reservation; });
    TANDEM_CHECK(opened != opened_.end() && !opened->complete, "what arrived twice");
    opened->complete = true;
    ExpectWhole(*opened);
  }

  // Token by token: that is how extents of other layouts are brought here.
  void ExpectWhole(const Opened& opened) const {
    const LandingPlan& plan = opened.plan;
    const size_t token_bytes = static_cast<size_t>(kLayout.ExtentBytes()) / 2 / 8;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const std::byte expected = ByteOf(opened.id.value(), layer);
      for (int32_t token = plan.cached_tokens; token < plan.prompt_tokens; ++token) {
        const std::byte* block =
            pool_.Extent(static_cast<int32_t>(layer), plan.blocks[static_cast<size_t>(token / 8)]);
        for (const size_t part : {size_t{0}, static_cast<size_t>(kLayout.ExtentBytes()) / 2}) {
          const std::byte* begin = block + part + static_cast<size_t>(token % 8) * token_bytes;
          TANDEM_CHECK(std::all_of(begin, begin + token_bytes,
                                   [expected](std::byte byte) { return byte == expected; }),
                       "complete, but not what was hashed");
        }
      }
    }
  }

  bool IsWritten(int32_t block) const {
    for (const Opened& opened : opened_) {
      const auto first = static_cast<size_t>(opened.plan.cached_tokens / 8);
      const auto& blocks = opened.plan.blocks;
      if (std::find(blocks.begin() + static_cast<ptrdiff_t>(first), blocks.end(), block) !=
          blocks.end()) {
        return true;
      }
    }
    return false;
  }

  // What belongs to nobody, or is cached.
  void ExpectUntouched() const {
    for (int32_t block = 0; block < kPoolBlocks; ++block) {
      if (IsWritten(block)) continue;
      for (int32_t layer = 0; layer < kLayers; ++layer) {
        const std::byte* begin = pool_.Extent(layer, block);
        TANDEM_CHECK(std::all_of(begin, begin + kLayout.ExtentBytes(),
                                 [](std::byte byte) { return byte == kUntouched; }),
                     "a block was written that nobody reserved");
      }
    }
  }

  std::vector<Opened> opened_ = Reservations();
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(static_cast<size_t>(kLayout.BlockBytes()) * kPoolBlocks, kUntouched);
  const KvPoolView pool_ = kLayout.PoolView(memory_.data(), kPoolBlocks);
  FakeClock clock_;
  Inbox inbox_{16};
  LandingZone zone_{
      {.layout = kLayout, .epoch = kEpoch, .lease = kLease},
      pool_,
      {.slots = *ConversionSlots::Create(*Cpu().device, 2, LargestExtentBytesTo(kLayout)),
       .converter = *KvConverter::Create(*Cpu().device, *Cpu().ops, kLayout, pool_)},
      clock_,
      inbox_};
  std::unique_ptr<PayloadPath> path_;
  int draining_ = 0;
};

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
      : worker_(worker), steps_(steps), has_side_channel_(has_side_channel) {
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
        return SayPayload(line, FrameType::kData, HeaderOf(FrameType::kData, steps_.Take(2)));
      case 3:
        return SayPayload(line, FrameType::kReference, AnyReference());
      case 4:
        return Say(line, {.type = FrameType::kAnnounce,
                          .payload_bytes = static_cast<uint32_t>(steps_.Take(2))});
      case 5:
        return SayCommit(line);
      case 6:
        return Say(line, HeaderOf(FrameType::kRenew, 0));
      case 7:
        return SayHello(line);
      case 8:
        return Say(line, AnyHeader());
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

  FrameHeader HeaderOf(FrameType type, uint64_t payload_bytes) {
    static constexpr std::array<uint64_t, 8> kStreams = {3, 4, 5, 3, 4, 5, 1, 9};
    const uint64_t which = steps_.Take(1);
    return {.type = type,
            .stream = kStreams[which % kStreams.size()],
            .epoch = which >= 0xF0 ? kEpoch - 1 : kEpoch,
            .payload_bytes = static_cast<uint32_t>(payload_bytes)};
  }

  // Of an extent that some reservation has, or nearly.
  FrameHeader ExtentHeader(FrameType type) {
    FrameHeader header = HeaderOf(type, 0);
    const uint64_t place = steps_.Take(1);
    header.layer = place % 3;
    header.block = place / 3 % 4;
    header.payload_bytes = static_cast<uint32_t>(header.stream == 5 ? kWideLayout.ExtentBytes()
                                                                    : kLayout.ExtentBytes());
    return header;
  }

  void SayData(Line& line, Content content) {
    FrameHeader header = ExtentHeader(has_side_channel_ ? FrameType::kReference : FrameType::kData);
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

  FrameHeader AnyReference() {
    FrameHeader header = ExtentHeader(FrameType::kReference);
    header.payload_bytes = 1 + static_cast<uint32_t>(steps_.Take(2));
    header.payload_handle = steps_.Take(2);
    return header;
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
    FrameHeader header = HeaderOf(FrameType::kCommit, 0);
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
    if ((fields & 64) != 0) header.payload_hash = header.sent_bytes = steps_.Take(8);
    if ((fields & 128) != 0) header.frames = header.payload_handle = steps_.Take(8);
    // Only what an honest sender sends of an extent has a hash that fits it: libFuzzer learns the
    // numbers that the code compares.
    if (BringsPayload(header) && header.payload_bytes <= kLargestExtent) {
      const std::vector<std::byte> honest(header.payload_bytes,
                                          ByteOf(header.stream, header.layer));
      header.payload_hash = Hash64(honest);
    }
    return header;
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
  const bool has_side_channel_;
  SharedMemoryOfAPeer side_channel_;
  std::vector<std::byte> read_ahead_ = std::vector<std::byte>(1024);
  TransportCounters counters_;
  std::array<Line, kConnections> lines_;
  size_t current_ = 0;
};

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  Steps steps(std::span(data, size));
  const auto ways = static_cast<Worker::Ways>(steps.Take(1) % 3);
  Worker worker(ways);
  HostileSenders senders(worker, steps, ways == Worker::Ways::kSideChannel);
  while (!steps.done()) senders.DoStep();
  senders.CloseAll();
  worker.ExpectNothingUnderWay();
  return 0;
}
