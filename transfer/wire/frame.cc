#include "transfer/wire/frame.h"

#include <algorithm>
#include <concepts>
#include <optional>

#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

// Offsets of the fields, as in docs/kv_wire_format.md.
constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 4;
constexpr size_t kTypeAt = 6;
constexpr size_t kCodeAt = 7;
constexpr size_t kStreamAt = 8;
constexpr size_t kEpochAt = 16;
constexpr size_t kLayerAt = 24;
constexpr size_t kBlockAt = 28;
constexpr size_t kPayloadBytesAt = 32;
constexpr size_t kReservedAt = 36;
constexpr size_t kPayloadHashAt = 40;
constexpr size_t kSentBytesAt = 40;  // only in a commit, which has no payload
constexpr size_t kFramesAt = 48;
constexpr size_t kPayloadHandleAt = 48;  // only in a reference, which counts nothing
constexpr size_t kHeaderHashAt = 56;

constexpr uint8_t kMaxStatusCode = 16;

using HeaderBytes = std::span<const std::byte, kFrameHeaderBytes>;

template <std::unsigned_integral T>
void Store(std::span<std::byte, kFrameHeaderBytes> bytes, size_t at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes[at + i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

template <std::unsigned_integral T>
T Load(HeaderBytes bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

// The fields that a type uses. All others must be zero, so that every header has one encoding.
struct UsedFields {
  bool stream = true;
  bool code = false;
  bool epoch = true;
  bool layer = false;
  bool block = false;
  bool payload_bytes = false;
  bool payload_hash = false;
  bool frames = false;
  bool sent_bytes = false;
  bool payload_handle = false;
};

// Empty for an unknown type.
std::optional<UsedFields> FieldsOf(FrameType type) {
  switch (type) {
    case FrameType::kData:
      return UsedFields{.layer = true, .block = true, .payload_bytes = true, .payload_hash = true};
    case FrameType::kReference:
      return UsedFields{.layer = true,
                        .block = true,
                        .payload_bytes = true,
                        .payload_hash = true,
                        .payload_handle = true};
    case FrameType::kAnnounce:
      return UsedFields{.stream = false, .epoch = false, .payload_bytes = true};
    case FrameType::kCommit:
      return UsedFields{.block = true, .frames = true, .sent_bytes = true};
    case FrameType::kAck:
      return UsedFields{.block = true};
    case FrameType::kReject:
      return UsedFields{.code = true, .block = true};
    case FrameType::kHello:
      return UsedFields{.epoch = false, .block = true};
    case FrameType::kCredit:
      return UsedFields{.stream = false, .epoch = false, .frames = true};
    case FrameType::kRenew:
      return UsedFields{};
    case FrameType::kResend:
      return UsedFields{.layer = true, .block = true, .frames = true};
  }
  return std::nullopt;
}

absl::Status CheckUnusedFields(const FrameHeader& header, const UsedFields& used) {
  if ((used.code || header.code == 0) && (used.stream || header.stream == 0) &&
      (used.epoch || header.epoch == 0) && (used.layer || header.layer == 0) &&
      (used.block || header.block == 0) && (used.payload_bytes || header.payload_bytes == 0) &&
      (used.payload_hash || header.payload_hash == 0) && (used.frames || header.frames == 0) &&
      (used.sent_bytes || header.sent_bytes == 0) &&
      (used.payload_handle || header.payload_handle == 0)) {
    return absl::OkStatus();
  }
  return InvalidArgument("frame of type {}: a field that the type does not use is set",
                         static_cast<int>(header.type));
}

absl::Status CheckFields(const FrameHeader& header) {
  const std::optional<UsedFields> used = FieldsOf(header.type);
  if (!used) return InvalidArgument("frame of type {}: unknown", static_cast<int>(header.type));
  RETURN_IF_ERROR(CheckUnusedFields(header, *used));
  if (used->payload_bytes &&
      (header.payload_bytes == 0 || header.payload_bytes > kMaxPayloadBytes)) {
    return InvalidArgument("frame of type {} with {} bytes of payload: must have between 1 and {}",
                           static_cast<int>(header.type), header.payload_bytes, kMaxPayloadBytes);
  }
  if (used->code && (header.code == 0 || header.code > kMaxStatusCode)) {
    return InvalidArgument("reject frame with code {}: must be a status code from 1 to {}",
                           header.code, kMaxStatusCode);
  }
  if (header.type == FrameType::kHello && (header.stream == 0 || header.block != 1)) {
    return InvalidArgument("hello {:#x} of {} connections: must have a number, and say 1",
                           header.stream, header.block);
  }
  if (header.type == FrameType::kResend && header.frames == 0) {
    return InvalidArgument("resend frame that asks for nothing");
  }
  return absl::OkStatus();
}

}  // namespace

std::array<std::byte, kFrameHeaderBytes> EncodeFrameHeader(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderBytes> bytes{};
  Store(bytes, kMagicAt, kFrameMagic);
  Store(bytes, kVersionAt, kFrameVersion);
  Store(bytes, kTypeAt, static_cast<uint8_t>(header.type));
  Store(bytes, kCodeAt, header.code);
  Store(bytes, kStreamAt, header.stream);
  Store(bytes, kEpochAt, header.epoch);
  Store(bytes, kLayerAt, header.layer);
  Store(bytes, kBlockAt, header.block);
  Store(bytes, kPayloadBytesAt, header.payload_bytes);
  const bool is_commit = header.type == FrameType::kCommit;
  Store(bytes, is_commit ? kSentBytesAt : kPayloadHashAt,
        is_commit ? header.sent_bytes : header.payload_hash);
  const bool is_reference = header.type == FrameType::kReference;
  Store(bytes, is_reference ? kPayloadHandleAt : kFramesAt,
        is_reference ? header.payload_handle : header.frames);
  Store(bytes, kHeaderHashAt, Hash64(std::span(bytes).first<kHeaderHashAt>()));
  return bytes;
}

absl::Status CheckPayloadHash(const FrameHeader& header, uint64_t hash) {
  if (hash == header.payload_hash) return absl::OkStatus();
  return DataLoss("stream {}: layer {} block {} has hash {:#018x}, its frame says {:#018x}",
                  header.stream, header.layer, header.block, hash, header.payload_hash);
}

absl::StatusOr<FrameHeader> ParseFrameHeader(HeaderBytes bytes) {
  if (const auto magic = Load<uint32_t>(bytes, kMagicAt); magic != kFrameMagic) {
    return DataLoss("frame magic {:#010x}, expected {:#010x}: not a frame, or bytes were lost",
                    magic, kFrameMagic);
  }
  if (const uint64_t hash = Hash64(bytes.first<kHeaderHashAt>());
      hash != Load<uint64_t>(bytes, kHeaderHashAt)) {
    return DataLoss("frame header has hash {:#018x}, it says {:#018x}", hash,
                    Load<uint64_t>(bytes, kHeaderHashAt));
  }
  if (const auto version = Load<uint16_t>(bytes, kVersionAt); version != kFrameVersion) {
    return FailedPrecondition("frame version {}, this build speaks {}: run the same build on both",
                              version, kFrameVersion);
  }
  if (Load<uint32_t>(bytes, kReservedAt) != 0) {
    return InvalidArgument("frame header: the reserved bytes are not zero");
  }
  FrameHeader header = {.type = static_cast<FrameType>(Load<uint8_t>(bytes, kTypeAt)),
                        .code = Load<uint8_t>(bytes, kCodeAt),
                        .stream = Load<uint64_t>(bytes, kStreamAt),
                        .epoch = Load<uint64_t>(bytes, kEpochAt),
                        .layer = Load<uint32_t>(bytes, kLayerAt),
                        .block = Load<uint32_t>(bytes, kBlockAt),
                        .payload_bytes = Load<uint32_t>(bytes, kPayloadBytesAt),
                        .payload_hash = Load<uint64_t>(bytes, kPayloadHashAt),
                        .frames = Load<uint64_t>(bytes, kFramesAt)};
  if (header.type == FrameType::kCommit) {
    header.sent_bytes = Load<uint64_t>(bytes, kSentBytesAt);
    header.payload_hash = 0;
  }
  if (header.type == FrameType::kReference) {
    header.payload_handle = Load<uint64_t>(bytes, kPayloadHandleAt);
    header.frames = 0;
  }
  RETURN_IF_ERROR(CheckFields(header));
  return header;
}

}  // namespace tandem
