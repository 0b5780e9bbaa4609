#include "transfer/frame.h"

#include <algorithm>
#include <concepts>

#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

// Offsets of the fields (docs/kv_wire_format.md).
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
constexpr size_t kFramesAt = 48;
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

// Fields that a type does not use are zero: a header has one encoding.
absl::Status CheckUnusedFields(const FrameHeader& header) {
  const bool is_data = header.type == FrameType::kData;
  const bool has_extent = header.layer != 0 || header.block != 0 || header.payload_bytes != 0 ||
                          header.payload_hash != 0;
  if ((!is_data && has_extent) || (header.type != FrameType::kReject && header.code != 0) ||
      (header.type != FrameType::kCommit && header.frames != 0)) {
    return InvalidArgument("frame of type {}: a field that the type does not use is set",
                           static_cast<int>(header.type));
  }
  return absl::OkStatus();
}

absl::Status CheckFields(const FrameHeader& header) {
  switch (header.type) {
    case FrameType::kData:
      if (header.payload_bytes == 0 || header.payload_bytes > kMaxPayloadBytes) {
        return InvalidArgument("data frame of {} bytes: must have between 1 and {}",
                               header.payload_bytes, kMaxPayloadBytes);
      }
      return CheckUnusedFields(header);
    case FrameType::kReject:
      if (header.code == 0 || header.code > kMaxStatusCode) {
        return InvalidArgument("reject frame with code {}: must be a status code from 1 to {}",
                               header.code, kMaxStatusCode);
      }
      return CheckUnusedFields(header);
    case FrameType::kCommit:
    case FrameType::kAck:
      return CheckUnusedFields(header);
  }
  return InvalidArgument("frame of type {}: unknown", static_cast<int>(header.type));
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
  Store(bytes, kPayloadHashAt, header.payload_hash);
  Store(bytes, kFramesAt, header.frames);
  Store(bytes, kHeaderHashAt, Hash64(std::span(bytes).first<kHeaderHashAt>()));
  return bytes;
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
  const FrameHeader header = {.type = static_cast<FrameType>(Load<uint8_t>(bytes, kTypeAt)),
                              .code = Load<uint8_t>(bytes, kCodeAt),
                              .stream = Load<uint64_t>(bytes, kStreamAt),
                              .epoch = Load<uint64_t>(bytes, kEpochAt),
                              .layer = Load<uint32_t>(bytes, kLayerAt),
                              .block = Load<uint32_t>(bytes, kBlockAt),
                              .payload_bytes = Load<uint32_t>(bytes, kPayloadBytesAt),
                              .payload_hash = Load<uint64_t>(bytes, kPayloadHashAt),
                              .frames = Load<uint64_t>(bytes, kFramesAt)};
  RETURN_IF_ERROR(CheckFields(header));
  return header;
}

}  // namespace tandem
