// The ring by itself, and against an other side that writes nonsense into the shared memory.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "transfer/media/shm/ring.h"

namespace tandem {
namespace {

constexpr size_t kRingBytes = 64;
constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xA5};

// A ring between guards, and both of its sides.
struct Ring {
  Ring() {
    memory.fill(kGuard);
    std::ranges::fill(bytes(), std::byte{0});
  }
  std::span<std::byte> bytes() { return std::span(memory).subspan(kGuardBytes, kRingBytes); }
  void ExpectGuardsUntouched() {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    EXPECT_TRUE(std::ranges::all_of(std::span(memory).first(kGuardBytes), is_guard));
    EXPECT_TRUE(std::ranges::all_of(std::span(memory).last(kGuardBytes), is_guard));
  }

  std::array<std::byte, kRingBytes + 2 * kGuardBytes> memory;
  RingControl control{};
  RingWriter writer{control, bytes()};
  RingReader reader{control, bytes()};
};

std::vector<std::byte> Numbers(size_t count, uint8_t first) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

TEST(ShmRing, BytesGoRound) {
  Ring ring;
  uint8_t next = 0;
  for (size_t size : {50, 50, 63, 64, 1, 64, 7}) {
    const auto sent = Numbers(size, next);
    next = static_cast<uint8_t>(next + size);
    EXPECT_EQ(*ring.writer.Put(sent), size);
    EXPECT_FALSE(ring.writer.Publish());
    std::vector<std::byte> got(size);
    EXPECT_EQ(*ring.reader.Get(got), size);
    EXPECT_FALSE(ring.reader.Release());
    EXPECT_EQ(got, sent);
  }
  ring.ExpectGuardsUntouched();
}

TEST(ShmRing, TakesNoMoreThanThereIsRoomFor) {
  Ring ring;
  EXPECT_EQ(*ring.writer.Put(Numbers(100, 0)), kRingBytes);
  EXPECT_EQ(*ring.writer.Put(Numbers(1, 0)), 0u);
  EXPECT_FALSE(ring.writer.Publish());
  std::vector<std::byte> got(100);
  EXPECT_EQ(*ring.reader.Get(got), kRingBytes);
  EXPECT_EQ(*ring.reader.Get(got), 0u);
  EXPECT_EQ(*ring.writer.Put(Numbers(1, 0)), 0u) << "the room was not given back yet";
  EXPECT_FALSE(ring.reader.Release());
  EXPECT_EQ(*ring.writer.Put(Numbers(100, 0)), kRingBytes);
  ring.ExpectGuardsUntouched();
}

TEST(ShmRing, WhatIsNotPublishedIsNotSeen) {
  Ring ring;
  EXPECT_EQ(*ring.writer.Put(Numbers(10, 0)), 10u);
  EXPECT_EQ(ring.writer.pending(), 10u);
  EXPECT_EQ(*ring.reader.Waiting(), 0u);
  EXPECT_FALSE(ring.writer.Publish());
  EXPECT_EQ(ring.writer.pending(), 0u);
  EXPECT_EQ(*ring.reader.Waiting(), 10u);
}

TEST(ShmRing, ASleepingReaderIsWokenOnce) {
  Ring ring;
  EXPECT_EQ(ring.reader.Arm(), SleepChange::kArmed);
  EXPECT_EQ(ring.reader.Arm(), SleepChange::kNone);
  EXPECT_EQ(*ring.writer.Put(Numbers(1, 0)), 1u);
  EXPECT_TRUE(ring.writer.Publish());
  EXPECT_EQ(*ring.writer.Put(Numbers(1, 0)), 1u);
  EXPECT_FALSE(ring.writer.Publish());
  EXPECT_EQ(ring.reader.Disarm(), SleepChange::kNone);
}

TEST(ShmRing, ASleepingWriterIsWokenWhenHalfIsFree) {
  Ring ring;
  EXPECT_EQ(*ring.writer.Put(Numbers(kRingBytes, 0)), kRingBytes);
  EXPECT_FALSE(ring.writer.Publish());
  EXPECT_EQ(ring.writer.Arm(), SleepChange::kArmed);
  EXPECT_TRUE(ring.writer.armed());
  std::vector<std::byte> got(kRingBytes / 2 - 1);
  EXPECT_EQ(*ring.reader.Get(got), got.size());
  EXPECT_FALSE(ring.reader.Release());
  EXPECT_EQ(*ring.reader.Get(std::span(got).first(1)), 1u);
  EXPECT_TRUE(ring.reader.Release());
  EXPECT_FALSE(ring.writer.armed());
}

TEST(ShmRing, IndicesThatCannotBeAreRefused) {
  for (const uint64_t tail : {uint64_t{kRingBytes + 1}, uint64_t{1} << 40, ~uint64_t{0}}) {
    Ring ring;
    ring.control.tail = tail;
    std::array<std::byte, 256> got;
    EXPECT_EQ(ring.reader.Get(got).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ring.reader.Waiting().status().code(), absl::StatusCode::kFailedPrecondition);
  }
  for (const uint64_t head : {uint64_t{kRingBytes + 1}, uint64_t{1} << 40, ~uint64_t{0}}) {
    Ring ring;
    EXPECT_EQ(*ring.writer.Put(Numbers(kRingBytes, 0)), kRingBytes);
    ring.control.head = head;
    EXPECT_EQ(ring.writer.Put(Numbers(1, 0)).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ring.writer.Room().status().code(), absl::StatusCode::kFailedPrecondition);
    ring.ExpectGuardsUntouched();
  }
}

// An index of the other side may be anything at any time: bytes may be wrong then, never outside.
TEST(ShmRing, NothingOutsideIsTouchedWhateverTheOtherSideWrites) {
  uint64_t state = 11;
  const auto random = [&] { return state = state * 6364136223846793005u + 1442695040888963407u; };
  for (int round = 0; round < 2000; ++round) {
    Ring ring;
    for (int step = 0; step < 20; ++step) {
      const uint64_t near = random() % (2 * kRingBytes);
      ring.control.head = random() % 4 == 0 ? random() : near;
      ring.control.tail = random() % 4 == 0 ? random() : near + random() % kRingBytes;
      const auto put = ring.writer.Put(Numbers(random() % 100, 0));
      std::array<std::byte, 100> got;
      const auto count = ring.reader.Get(std::span(got).first(random() % 100));
      ASSERT_LE(put.value_or(0), kRingBytes);
      ASSERT_LE(count.value_or(0), kRingBytes);
    }
    ring.ExpectGuardsUntouched();
  }
}

}  // namespace
}  // namespace tandem
