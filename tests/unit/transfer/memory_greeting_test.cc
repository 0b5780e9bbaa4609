// What both sides of an ipc connection say before bytes flow (transfer/media/memory_greeting.h).
#include "transfer/media/memory_greeting.h"

#include <cstring>

#include "base/hash.h"
#include "gtest/gtest.h"

namespace tandem::memory_greeting_test {
namespace {

using Kind = MemoryHandle::Kind;

MemoryGreeting TwoSegments() {
  MemorySegment token = {.kind = Kind::kCudaIpc, .bytes = kMaxMemorySegmentBytes - 1};
  token.token.fill(std::byte{7});
  return {.segments = {{.kind = Kind::kHostFile, .bytes = 4096}, token}};
}

template <size_t kSize>
std::array<std::byte, kSize> With(std::array<std::byte, kSize> message, size_t at, uint8_t value) {
  message[at] = std::byte{value};
  const uint64_t hash = Hash64(std::span(message).template first<kSize - sizeof(uint64_t)>());
  std::memcpy(message.data() + kSize - sizeof(hash), &hash, sizeof(hash));
  return message;
}

absl::StatusCode CodeOfGreetingWith(size_t at, uint8_t value) {
  return ParseMemoryGreeting(With(EncodeMemoryGreeting(TwoSegments()), at, value)).status().code();
}

TEST(MemoryGreetingMessage, HasOneEncoding) {
  for (const MemoryGreeting& greeting :
       {MemoryGreeting{}, TwoSegments(),
        MemoryGreeting{.segments = std::vector<MemorySegment>(kMaxMemorySegments, {.bytes = 1})}}) {
    const auto again = ParseMemoryGreeting(EncodeMemoryGreeting(greeting));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, greeting);
  }
}

TEST(MemoryGreetingMessage, AnyFlippedBitIsNoticed) {
  const auto whole = EncodeMemoryGreeting(TwoSegments());
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    auto flipped = whole;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(ParseMemoryGreeting(flipped).status().code(), absl::StatusCode::kDataLoss) << bit;
  }
}

TEST(MemoryGreetingMessage, FieldsThatCannotBeAreRefused) {
  constexpr size_t kFirst = 8;
  constexpr size_t kSecond = kFirst + kMemorySegmentBytes;
  constexpr size_t kThird = kSecond + kMemorySegmentBytes;
  EXPECT_EQ(CodeOfGreetingWith(4, 1), absl::StatusCode::kOk) << "the version is 1";
  EXPECT_EQ(CodeOfGreetingWith(4, 2), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CodeOfGreetingWith(6, kMaxMemorySegments + 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOfGreetingWith(6, 3), absl::StatusCode::kInvalidArgument) << "of kind 0";
  EXPECT_EQ(CodeOfGreetingWith(6, 1), absl::StatusCode::kInvalidArgument) << "bytes behind";
  EXPECT_EQ(CodeOfGreetingWith(7, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOfGreetingWith(kFirst, 4), absl::StatusCode::kInvalidArgument) << "kind 4";
  EXPECT_EQ(CodeOfGreetingWith(kFirst + 1, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOfGreetingWith(kFirst + 9, 0), absl::StatusCode::kInvalidArgument) << "no bytes";
  EXPECT_EQ(CodeOfGreetingWith(kSecond + 14, 1), absl::StatusCode::kInvalidArgument) << "too many";
  EXPECT_EQ(CodeOfGreetingWith(kThird + 20, 1), absl::StatusCode::kInvalidArgument);
}

TEST(MemoryAnswerMessage, HasOneEncoding) {
  for (const auto code : {absl::StatusCode::kOk, absl::StatusCode::kPermissionDenied}) {
    EXPECT_EQ(*ParseMemoryAnswer(EncodeMemoryAnswer(code)), code);
  }
  const auto whole = EncodeMemoryAnswer(absl::StatusCode::kOk);
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    auto flipped = whole;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(ParseMemoryAnswer(flipped).status().code(), absl::StatusCode::kDataLoss) << bit;
  }
  EXPECT_EQ(ParseMemoryAnswer(With(whole, 4, 2)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ParseMemoryAnswer(With(whole, 6, 17)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseMemoryAnswer(With(whole, 7, 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::memory_greeting_test
