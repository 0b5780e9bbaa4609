#include "transfer/media/memory_greeting.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "transfer/wire/setup_message.h"

namespace tandem {
namespace {

constexpr size_t kCountAt = 6;  // offset of the number of segments in a greeting
constexpr size_t kCodeAt = 6;   // offset of the status code in an answer
constexpr size_t kSegmentsAt = 8;
// Offsets of the fields in the description of a segment.
constexpr size_t kKindAt = 0;
constexpr size_t kBytesAt = 8;
constexpr size_t kTokenAt = 16;
static_assert(kTokenAt + MemoryHandle::kTokenBytes == kMemorySegmentBytes);

constexpr uint32_t kGreetingMagic = 0x50494454;  // "TDIP"
constexpr uint32_t kAnswerMagic = 0x41494454;    // "TDIA"

void EncodeSegment(std::span<std::byte> bytes, const MemorySegment& segment) {
  StoreField(bytes, kKindAt, 1, static_cast<uint64_t>(segment.kind));
  StoreField(bytes, kBytesAt, 8, segment.bytes);
  std::ranges::copy(segment.token, bytes.begin() + kTokenAt);
}

absl::StatusOr<MemorySegment> ParseSegment(std::span<const std::byte> bytes) {
  const uint64_t kind = LoadField(bytes, kKindAt, 1);
  if (kind < static_cast<uint64_t>(MemoryHandle::Kind::kHostFile) ||
      kind > static_cast<uint64_t>(MemoryHandle::Kind::kCudaIpc)) {
    return InvalidArgument("memory greeting: memory of kind {}", kind);
  }
  MemorySegment segment = {.kind = static_cast<MemoryHandle::Kind>(kind),
                           .bytes = LoadField(bytes, kBytesAt, 8)};
  if (segment.bytes == 0 || segment.bytes >= kMaxMemorySegmentBytes) {
    return InvalidArgument("memory greeting: a segment of {} bytes", segment.bytes);
  }
  std::ranges::copy(bytes.subspan(kTokenAt), segment.token.begin());
  return segment;
}

}  // namespace

bool HasFile(MemoryHandle::Kind kind) { return kind != MemoryHandle::Kind::kCudaIpc; }

std::array<std::byte, kMemoryGreetingBytes> EncodeMemoryGreeting(const MemoryGreeting& greeting) {
  TANDEM_CHECK(greeting.segments.size() <= kMaxMemorySegments, "more segments than a greeting has");
  std::array<std::byte, kMemoryGreetingBytes> bytes{};
  StoreField(bytes, kCountAt, 1, greeting.segments.size());
  for (size_t i = 0; i < greeting.segments.size(); ++i) {
    EncodeSegment(
        std::span(bytes).subspan(kSegmentsAt + i * kMemorySegmentBytes, kMemorySegmentBytes),
        greeting.segments[i]);
  }
  SealSetup(bytes, kGreetingMagic, kMemoryGreetingVersion);
  return bytes;
}

absl::StatusOr<MemoryGreeting> ParseMemoryGreeting(
    std::span<const std::byte, kMemoryGreetingBytes> bytes) {
  RETURN_IF_ERROR(CheckSetup(bytes, kGreetingMagic, kMemoryGreetingVersion, "memory greeting"));
  const uint64_t count = LoadField(bytes, kCountAt, 1);
  if (count > kMaxMemorySegments) {
    return InvalidArgument("memory greeting: {} segments, at most {} can be", count,
                           kMaxMemorySegments);
  }
  MemoryGreeting greeting;
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(
        greeting.segments.emplace_back(),
        ParseSegment(bytes.subspan(kSegmentsAt + i * kMemorySegmentBytes, kMemorySegmentBytes)));
  }
  if (!std::ranges::equal(EncodeMemoryGreeting(greeting), bytes)) {
    return InvalidArgument("memory greeting: bytes that this version does not use are set");
  }
  return greeting;
}

std::array<std::byte, kMemoryAnswerBytes> EncodeMemoryAnswer(absl::StatusCode code) {
  std::array<std::byte, kMemoryAnswerBytes> bytes{};
  StoreField(bytes, kCodeAt, 1, static_cast<uint64_t>(code));
  SealSetup(bytes, kAnswerMagic, kMemoryGreetingVersion);
  return bytes;
}

absl::StatusOr<absl::StatusCode> ParseMemoryAnswer(
    std::span<const std::byte, kMemoryAnswerBytes> bytes) {
  RETURN_IF_ERROR(CheckSetup(bytes, kAnswerMagic, kMemoryGreetingVersion, "ipc answer"));
  const uint64_t code = LoadField(bytes, kCodeAt, 1);
  if (code > kMaxStatusCode) return InvalidArgument("ipc answer: status code {}", code);
  if (!std::ranges::equal(EncodeMemoryAnswer(static_cast<absl::StatusCode>(code)), bytes)) {
    return InvalidArgument("ipc answer: bytes that this version does not use are set");
  }
  return static_cast<absl::StatusCode>(code);
}

}  // namespace tandem
