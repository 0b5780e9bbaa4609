#include "transfer/wire/frame.h"

#include "base/hash.h"
#include "base/status.h"
#include "transfer/wire/setup_message.h"

namespace tandem {
namespace {

using HeaderBytes = std::span<const std::byte, kFrameHeaderBytes>;

struct Field {
  size_t at = 0;  // offset in the header, as in docs/kv_wire_format.md
  size_t size = 0;
  unsigned use = 0;  // the bit of this field in UsesOf; 0 for a field that all types use
};

constexpr Field kMagic = {0, 4};
constexpr Field kVersion = {4, 2};
constexpr Field kType = {6, 1};
constexpr Field kCode = {7, 1, 1};
constexpr Field kStream = {8, 8, 2};
constexpr Field kEpoch = {16, 8, 4};
constexpr Field kLayer = {24, 4, 8};
constexpr Field kBlock = {28, 4, 16};
constexpr Field kPayloadBytes = {32, 4, 32};
constexpr Field kKind = {36, 1, 64};
constexpr Field kReserved = {37, 3};
constexpr Field kPayloadHash = {40, 8, 128};  // in a commit, which has no payload: sent_bytes
constexpr Field kFrames = {48, 8, 256};  // in a reference, which counts nothing: payload_handle
constexpr Field kHeaderHash = {56, 8};

// The fields that not all types use. In the header of a type that does not use one it must be zero,
// so that every header has one encoding.
constexpr std::array<Field, 9> kOptional = {kCode,         kStream,      kEpoch,  kLayer, kBlock,
                                            kPayloadBytes, kPayloadHash, kFrames, kKind};

// The fields that a frame type uses, as a set of Field::use; none for an unknown type.
unsigned UsesOf(FrameType type) {
  constexpr unsigned kKey = kStream.use | kEpoch.use;
  constexpr unsigned kExtent = kKey | kLayer.use | kBlock.use;
  switch (type) {
    case FrameType::kData:
      return kExtent | kPayloadBytes.use | kPayloadHash.use | kKind.use;
    case FrameType::kReference:
      return kExtent | kPayloadBytes.use | kPayloadHash.use | kFrames.use | kKind.use;
    case FrameType::kAnnounce:
      return kPayloadBytes.use;
    case FrameType::kCommit:
      return kKey | kBlock.use | kPayloadHash.use | kFrames.use;
    case FrameType::kAck:
      return kKey | kBlock.use;
    case FrameType::kReject:
      return kKey | kCode.use | kBlock.use;
    case FrameType::kHello:
      return kStream.use | kBlock.use;
    case FrameType::kCredit:
      return kFrames.use;
    case FrameType::kRenew:
      return kKey;
    case FrameType::kResend:
      return kExtent | kFrames.use;
  }
  return 0;
}

void Store(std::span<std::byte> bytes, Field field, uint64_t value) {
  StoreField(bytes, field.at, field.size, value);
}

template <typename T>
T Load(HeaderBytes bytes, Field field) {
  return static_cast<T>(LoadField(bytes, field.at, field.size));
}

uint16_t VersionOf(PayloadKind kind) {
  return kind == PayloadKind::kExtent ? kFrameVersion : kKindVersion;
}

absl::Status CheckFields(const FrameHeader& header, HeaderBytes bytes) {
  const unsigned uses = UsesOf(header.type);
  if (uses == 0) return InvalidArgument("frame of unknown type {}", static_cast<int>(header.type));
  for (const Field& field : kOptional) {
    if ((uses & field.use) == 0 && Load<uint64_t>(bytes, field) != 0) {
      return InvalidArgument("frame of type {}: a field that the type does not use is set",
                             static_cast<int>(header.type));
    }
  }
  if ((uses & kPayloadBytes.use) != 0 &&
      (header.payload_bytes == 0 || header.payload_bytes > kMaxPayloadBytes)) {
    return InvalidArgument("frame of type {} with {} bytes of payload: must have between 1 and {}",
                           static_cast<int>(header.type), header.payload_bytes, kMaxPayloadBytes);
  }
  if (header.kind > PayloadKind::kTables) {
    return InvalidArgument("frame of type {} with a payload of unknown kind {}",
                           static_cast<int>(header.type), static_cast<int>(header.kind));
  }
  if (const auto version = Load<uint16_t>(bytes, kVersion); version != VersionOf(header.kind)) {
    return InvalidArgument("frame of version {} with a payload of kind {}", version,
                           static_cast<int>(header.kind));
  }
  if ((uses & kCode.use) != 0 && (header.code == 0 || header.code > kMaxStatusCode)) {
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
  const bool is_commit = header.type == FrameType::kCommit;
  const bool is_reference = header.type == FrameType::kReference;
  Store(bytes, kMagic, kFrameMagic);
  Store(bytes, kVersion, VersionOf(header.kind));
  Store(bytes, kType, static_cast<uint8_t>(header.type));
  Store(bytes, kCode, header.code);
  Store(bytes, kStream, header.stream);
  Store(bytes, kEpoch, header.epoch);
  Store(bytes, kLayer, header.layer);
  Store(bytes, kBlock, header.block);
  Store(bytes, kPayloadBytes, header.payload_bytes);
  Store(bytes, kKind, static_cast<uint8_t>(header.kind));
  Store(bytes, kPayloadHash, is_commit ? header.sent_bytes : header.payload_hash);
  Store(bytes, kFrames, is_reference ? header.payload_handle : header.frames);
  Store(bytes, kHeaderHash, Hash64(std::span(bytes).first<kHeaderHash.at>()));
  return bytes;
}

absl::Status CheckPayloadHash(const FrameHeader& header, uint64_t hash) {
  if (hash == header.payload_hash) return absl::OkStatus();
  return DataLoss("stream {}: layer {} block {} has hash {:#018x}, its frame says {:#018x}",
                  header.stream, header.layer, header.block, hash, header.payload_hash);
}

absl::StatusOr<FrameHeader> ParseFrameHeader(HeaderBytes bytes) {
  if (const auto magic = Load<uint32_t>(bytes, kMagic); magic != kFrameMagic) {
    return DataLoss("frame magic {:#010x}, expected {:#010x}: not a frame, or bytes were lost",
                    magic, kFrameMagic);
  }
  if (const uint64_t hash = Hash64(bytes.first<kHeaderHash.at>());
      hash != Load<uint64_t>(bytes, kHeaderHash)) {
    return DataLoss("frame header has hash {:#018x}, it says {:#018x}", hash,
                    Load<uint64_t>(bytes, kHeaderHash));
  }
  if (const auto version = Load<uint16_t>(bytes, kVersion);
      version < kFrameVersion || version > kKindVersion) {
    return FailedPrecondition(
        "frame version {}, this build speaks {} and {}: run the same build on both", version,
        kFrameVersion, kKindVersion);
  }
  if (Load<uint32_t>(bytes, kReserved) != 0) {
    return InvalidArgument("frame header: the reserved bytes are not zero");
  }
  FrameHeader header = {.type = Load<FrameType>(bytes, kType),
                        .code = Load<uint8_t>(bytes, kCode),
                        .stream = Load<uint64_t>(bytes, kStream),
                        .epoch = Load<uint64_t>(bytes, kEpoch),
                        .layer = Load<uint32_t>(bytes, kLayer),
                        .block = Load<uint32_t>(bytes, kBlock),
                        .payload_bytes = Load<uint32_t>(bytes, kPayloadBytes),
                        .kind = Load<PayloadKind>(bytes, kKind)};
  (header.type == FrameType::kCommit ? header.sent_bytes : header.payload_hash) =
      Load<uint64_t>(bytes, kPayloadHash);
  (header.type == FrameType::kReference ? header.payload_handle : header.frames) =
      Load<uint64_t>(bytes, kFrames);
  RETURN_IF_ERROR(CheckFields(header, bytes));
  return header;
}

}  // namespace tandem
