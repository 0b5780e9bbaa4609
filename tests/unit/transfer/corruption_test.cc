// A corrupted frame is noticed every time: a million seeded corruptions of encoded frames, each
// through the reader of a connection. What is changed in the header must end the connection, what
// is changed in the payload must be reported as lost; nothing may land as if it were right.
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "base/hash.h"
#include "gtest/gtest.h"
#include "tests/support/transport_probe.h"
#include "transfer/wire/frame.h"
#include "transfer/wire/frame_reader.h"

namespace tandem::corruption_test {
namespace {

using Bytes = std::vector<std::byte>;

// Keeps no more than the last answer, so that a million frames take seconds.
class LandingProbe final : public FrameHandler {
 public:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override {
    ++prepared;
    place_.resize(header.payload_bytes);
    return std::span<std::byte>(place_);
  }
  void Landed(const FrameHeader&, const absl::Status& status) override {
    ++landed;
    last = status.code();
  }
  absl::Status Control(const FrameHeader&) override {
    ++controls;
    return absl::OkStatus();
  }

  int prepared = 0;
  int landed = 0;
  int controls = 0;
  absl::StatusCode last = absl::StatusCode::kOk;

 private:
  Bytes place_;
};

class Corrupter {
 public:
  explicit Corrupter(uint64_t seed) : random_(seed) {}

  size_t Below(size_t bound) { return random_() % bound; }

  // Changes something of the bytes, in one of the ways in which memory, cables and software do.
  void Corrupt(std::span<std::byte> bytes) {
    switch (Below(5)) {
      case 0:
        return FlipBits(bytes, 1 + Below(3));  // where a weak sum fails first
      case 1:
        return FlipBits(bytes, 1 + Below(64));
      case 2:
        return Burst(bytes);
      case 3:
        return SwapParts(bytes);
      default:
        return ZeroTail(bytes);
    }
  }

 private:
  void FlipBits(std::span<std::byte> bytes, size_t bits) {
    for (size_t i = 0; i < bits; ++i) {
      const size_t bit = Below(8 * bytes.size());
      bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    }
  }
  void Burst(std::span<std::byte> bytes) {
    const size_t at = Below(bytes.size());
    const size_t size = 1 + Below(std::min<size_t>(8, bytes.size() - at));
    for (size_t i = 0; i < size; ++i) bytes[at + i] ^= static_cast<std::byte>(random_());
  }
  // Two parts of 1 to 16 bytes that do not overlap change places.
  void SwapParts(std::span<std::byte> bytes) {
    if (bytes.size() < 2) return FlipBits(bytes, 1);
    const size_t size = 1 + Below(std::min<size_t>(16, bytes.size() / 2));
    const size_t first = Below(bytes.size() - 2 * size + 1);
    const size_t second = first + size + Below(bytes.size() - first - 2 * size + 1);
    std::swap_ranges(bytes.begin() + first, bytes.begin() + first + size, bytes.begin() + second);
  }
  // As if the rest had never been written.
  void ZeroTail(std::span<std::byte> bytes) {
    std::ranges::fill(bytes.subspan(Below(bytes.size())), std::byte{0});
  }

  std::mt19937_64 random_;
};

enum class Part : uint8_t { kHeader, kPayload, kAnywhere };

Bytes Frame(const FrameHeader& header, const Bytes& payload) {
  const auto encoded = EncodeFrameHeader(header);
  Bytes frame(encoded.size() + payload.size());
  std::ranges::copy(payload, std::ranges::copy(encoded, frame.begin()).out);
  return frame;
}

// Data frames of 1 byte to some hundred, with random and with all but constant payloads, and the
// frames without payload.
std::vector<Bytes> Frames() {
  std::vector<Bytes> frames;
  for (const size_t size : {1, 7, 16, 17, 64, 129, 240, 241, 512, 1040}) {
    Bytes constant(size, std::byte{0});
    constant[size / 2] = std::byte{1};
    for (const Bytes& payload : {PatternBytes(size, size), constant}) {
      frames.push_back(Frame({.type = FrameType::kData,
                              .stream = 0x1234567800000000 + size,
                              .epoch = 99,
                              .layer = 3,
                              .block = static_cast<uint32_t>(size),
                              .payload_bytes = static_cast<uint32_t>(size),
                              .payload_hash = Hash64(payload)},
                             payload));
    }
  }
  return frames;
}

// Of every type that has none, with every field that it may set.
std::vector<FrameHeader> HeadersWithoutPayload() {
  constexpr uint64_t kStream = 7;
  constexpr uint64_t kEpoch = 99;
  return {{.type = FrameType::kCommit,
           .stream = kStream,
           .epoch = kEpoch,
           .block = 3,
           .frames = 512,
           .sent_bytes = 1 << 20},
          {.type = FrameType::kAck, .stream = kStream, .epoch = kEpoch, .block = 3},
          {.type = FrameType::kReject, .code = 15, .stream = kStream, .epoch = kEpoch, .block = 3},
          {.type = FrameType::kHello, .stream = 0xfeedfacecafef00d, .layer = 0, .block = 1},
          {.type = FrameType::kCredit, .frames = 16 << 20},
          {.type = FrameType::kRenew, .stream = kStream, .epoch = kEpoch},
          {.type = FrameType::kResend,
           .stream = kStream,
           .epoch = kEpoch,
           .layer = 5,
           .block = 11,
           .frames = 2},
          {.type = FrameType::kReference,
           .stream = kStream,
           .epoch = kEpoch,
           .layer = 5,
           .block = 11,
           .payload_bytes = 64 << 10,
           .payload_hash = 0x0123456789abcdef,
           .payload_handle = uint64_t{3} << 48 | 4096},
          {.type = FrameType::kAnnounce, .payload_bytes = 16 << 20}};
}

std::vector<Bytes> FramesWithoutPayload() {
  std::vector<Bytes> frames;
  for (const FrameHeader& header : HeadersWithoutPayload()) frames.push_back(Frame(header, {}));
  return frames;
}

std::span<std::byte> PartOf(Bytes& frame, Part part) {
  const std::span<std::byte> all(frame);
  switch (part) {
    case Part::kHeader:
      return all.first(kFrameHeaderBytes);
    case Part::kPayload:
      return all.subspan(kFrameHeaderBytes);
    case Part::kAnywhere:
      break;
  }
  return all;
}

// Whether the reader noticed that `bad` is not `good`.
bool IsNoticed(const Bytes& bad, const Bytes& good) {
  LandingProbe probe;
  FrameReader reader(probe);
  const absl::Status status = reader.Feed(bad);
  const bool header_changed =
      !std::equal(bad.begin(), bad.begin() + kFrameHeaderBytes, good.begin());
  if (header_changed) return !status.ok() && probe.prepared == 0 && probe.controls == 0;
  return status.ok() && probe.landed == 1 && probe.last == absl::StatusCode::kDataLoss;
}

// `count` corruptions of frames in turn; returns how many were not noticed.
int Unnoticed(const std::vector<Bytes>& frames, Part part, int count, uint64_t seed) {
  Corrupter corrupter(seed);
  int unnoticed = 0;
  Bytes bad;
  for (int i = 0; i < count;) {
    const Bytes& good = frames[corrupter.Below(frames.size())];
    bad = good;
    corrupter.Corrupt(PartOf(bad, part));
    if (bad == good) continue;  // zeros over zeros, a bit flipped twice: nothing was corrupted
    ++i;
    if (!IsNoticed(bad, good)) ++unnoticed;
  }
  return unnoticed;
}

// Together 1,000,000.
TEST(CorruptionTest, EveryCorruptedPayloadIsNoticed) {
  EXPECT_EQ(Unnoticed(Frames(), Part::kPayload, 500'000, 1), 0);
}

TEST(CorruptionTest, EveryCorruptedHeaderIsNoticed) {
  EXPECT_EQ(Unnoticed(Frames(), Part::kHeader, 200'000, 2), 0);
  EXPECT_EQ(Unnoticed(FramesWithoutPayload(), Part::kHeader, 100'000, 3), 0);
}

TEST(CorruptionTest, EveryCorruptedFrameIsNoticed) {
  EXPECT_EQ(Unnoticed(Frames(), Part::kAnywhere, 200'000, 4), 0);
}

TEST(CorruptionTest, WhatIsRightLands) {
  for (const Bytes& frame : Frames()) {
    LandingProbe probe;
    FrameReader reader(probe);
    EXPECT_EQ(reader.Feed(frame), absl::OkStatus());
    EXPECT_EQ(probe.landed, 1);
    EXPECT_EQ(probe.last, absl::StatusCode::kOk);
  }
  for (const Bytes& frame : FramesWithoutPayload()) {
    LandingProbe probe;
    FrameReader reader(probe);
    EXPECT_EQ(reader.Feed(frame), absl::OkStatus());
    EXPECT_EQ(probe.controls, 1);
  }
}

// A type that is new must be corrupted here, too.
TEST(CorruptionTest, AllTypesAreThere) {
  std::set<FrameType> types = {FrameType::kData};
  for (const FrameHeader& header : HeadersWithoutPayload()) types.insert(header.type);
  for (uint32_t value = 0; value <= 255; ++value) {
    const auto type = static_cast<FrameType>(value);
    const auto encoded = EncodeFrameHeader({.type = type, .stream = 1});
    const absl::Status parsed = ParseFrameHeader(encoded).status();
    const bool known = !absl::StrContains(parsed.message(), "unknown");
    EXPECT_EQ(known, types.contains(type)) << value << ": " << parsed;
  }
}

}  // namespace
}  // namespace tandem::corruption_test
