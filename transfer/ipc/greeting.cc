#include "transfer/ipc/greeting.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

// Both messages begin alike and end with a hash of the rest.
constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 4;
constexpr size_t kCountAt = 6;  // of a greeting
constexpr size_t kCodeAt = 6;   // of an answer
constexpr size_t kSegmentsAt = 8;
constexpr size_t kHashBytes = 8;
// In a segment.
constexpr size_t kKindAt = 0;
constexpr size_t kBytesAt = 8;
constexpr size_t kTokenAt = 16;
static_assert(kTokenAt + MemoryHandle::kTokenBytes == kIpcSegmentBytes);

constexpr uint32_t kGreetingMagic = 0x50494454;  // "TDIP"
constexpr uint32_t kAnswerMagic = 0x41494454;    // "TDIA"
constexpr uint8_t kMaxStatusCode = 16;

void Store(std::span<std::byte> bytes, size_t at, size_t size, uint64_t value) {
  for (size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t Load(std::span<const std::byte> bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  }
  return value;
}

void Begin(std::span<std::byte> bytes, uint32_t magic) {
  Store(bytes, kMagicAt, 4, magic);
  Store(bytes, kVersionAt, 2, kIpcVersion);
}

void Seal(std::span<std::byte> bytes) {
  const size_t hash_at = bytes.size() - kHashBytes;
  Store(bytes, hash_at, kHashBytes, Hash64(bytes.first(hash_at)));
}

absl::Status CheckEnvelope(std::span<const std::byte> bytes, uint32_t magic,
                           std::string_view name) {
  if (Load(bytes, kMagicAt, 4) != magic) {
    return DataLoss("no ipc {}: it begins with {:#x}", name, Load(bytes, kMagicAt, 4));
  }
  const size_t hash_at = bytes.size() - kHashBytes;
  if (Load(bytes, hash_at, kHashBytes) != Hash64(bytes.first(hash_at))) {
    return DataLoss("ipc {}: the hash is wrong", name);
  }
  if (const uint64_t version = Load(bytes, kVersionAt, 2); version != kIpcVersion) {
    return FailedPrecondition("ipc {} of version {}: this build speaks {}", name, version,
                              kIpcVersion);
  }
  return absl::OkStatus();
}

void EncodeSegment(std::span<std::byte> bytes, const IpcSegment& segment) {
  Store(bytes, kKindAt, 1, static_cast<uint64_t>(segment.kind));
  Store(bytes, kBytesAt, 8, segment.bytes);
  std::ranges::copy(segment.token, bytes.begin() + kTokenAt);
}

absl::StatusOr<IpcSegment> ParseSegment(std::span<const std::byte> bytes) {
  const uint64_t kind = Load(bytes, kKindAt, 1);
  if (kind < static_cast<uint64_t>(MemoryHandle::Kind::kHostFile) ||
      kind > static_cast<uint64_t>(MemoryHandle::Kind::kCudaIpc)) {
    return InvalidArgument("ipc greeting: memory of kind {}", kind);
  }
  IpcSegment segment = {.kind = static_cast<MemoryHandle::Kind>(kind),
                        .bytes = Load(bytes, kBytesAt, 8)};
  if (segment.bytes == 0 || segment.bytes >= kMaxIpcSegmentBytes) {
    return InvalidArgument("ipc greeting: a segment of {} bytes", segment.bytes);
  }
  std::ranges::copy(bytes.subspan(kTokenAt), segment.token.begin());
  return segment;
}

}  // namespace

bool HasFile(MemoryHandle::Kind kind) { return kind != MemoryHandle::Kind::kCudaIpc; }

std::array<std::byte, kIpcGreetingBytes> EncodeIpcGreeting(const IpcGreeting& greeting) {
  TANDEM_CHECK(greeting.segments.size() <= kMaxIpcSegments, "more segments than a greeting has");
  std::array<std::byte, kIpcGreetingBytes> bytes{};
  Begin(bytes, kGreetingMagic);
  Store(bytes, kCountAt, 1, greeting.segments.size());
  for (size_t i = 0; i < greeting.segments.size(); ++i) {
    EncodeSegment(std::span(bytes).subspan(kSegmentsAt + i * kIpcSegmentBytes, kIpcSegmentBytes),
                  greeting.segments[i]);
  }
  Seal(bytes);
  return bytes;
}

absl::StatusOr<IpcGreeting> ParseIpcGreeting(std::span<const std::byte, kIpcGreetingBytes> bytes) {
  RETURN_IF_ERROR(CheckEnvelope(bytes, kGreetingMagic, "greeting"));
  const uint64_t count = Load(bytes, kCountAt, 1);
  if (count > kMaxIpcSegments) {
    return InvalidArgument("ipc greeting: {} segments, at most {} can be", count, kMaxIpcSegments);
  }
  IpcGreeting greeting;
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(
        greeting.segments.emplace_back(),
        ParseSegment(bytes.subspan(kSegmentsAt + i * kIpcSegmentBytes, kIpcSegmentBytes)));
  }
  if (!std::ranges::equal(EncodeIpcGreeting(greeting), bytes)) {
    return InvalidArgument("ipc greeting: bytes that this version does not use are set");
  }
  return greeting;
}

std::array<std::byte, kIpcAnswerBytes> EncodeIpcAnswer(absl::StatusCode code) {
  std::array<std::byte, kIpcAnswerBytes> bytes{};
  Begin(bytes, kAnswerMagic);
  Store(bytes, kCodeAt, 1, static_cast<uint64_t>(code));
  Seal(bytes);
  return bytes;
}

absl::StatusOr<absl::StatusCode> ParseIpcAnswer(std::span<const std::byte, kIpcAnswerBytes> bytes) {
  RETURN_IF_ERROR(CheckEnvelope(bytes, kAnswerMagic, "answer"));
  const uint64_t code = Load(bytes, kCodeAt, 1);
  if (code > kMaxStatusCode) return InvalidArgument("ipc answer: status code {}", code);
  if (!std::ranges::equal(EncodeIpcAnswer(static_cast<absl::StatusCode>(code)), bytes)) {
    return InvalidArgument("ipc answer: bytes that this version does not use are set");
  }
  return static_cast<absl::StatusCode>(code);
}

}  // namespace tandem
