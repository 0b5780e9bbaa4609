#include <bit>
#include <cstring>

#include "base/hash.h"
#include "base/status.h"
#include "kvstore/codec/byte_plane.h"
#include "kvstore/codec/codecs.h"
#include "kvstore/codec/kv_codec.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

constexpr uint32_t kMagic = 0x31434454;  // "TDC1" in memory order
// A frame is encoded only if that saves at least 1 / kLeastSaving of the extent; otherwise it is
// raw.
constexpr size_t kLeastSaving = 20;

// The bytes of a frame's header, in their order.
struct Header {
  uint32_t magic = kMagic;
  uint8_t codec = 0;
  uint8_t dtype = 0;
  uint16_t tokens = 0;
  uint16_t num_kv_heads = 0;
  uint16_t head_dim = 0;
  uint32_t payload_bytes = 0;
  uint64_t tables = 0;  // CodecTables::id; 0 where the payload needs no tables
  uint64_t hash = 0;    // XXH3-64 of the extent, or of the payload of a codec that changes KV
};
static_assert(sizeof(Header) == kCodecHeaderBytes);

absl::Status CheckShape(const ExtentShape& shape) {
  constexpr int32_t kMost = 0xffff;
  const auto in_range = [](int32_t value) { return value >= 1 && value <= kMost; };
  if (!in_range(shape.tokens) || !in_range(shape.num_kv_heads) || !in_range(shape.head_dim) ||
      shape.head_dim % 8 != 0) {
    return InvalidArgument("an extent of {} tokens, {} heads of {}: no frame holds it",
                           shape.tokens, shape.num_kv_heads, shape.head_dim);
  }
  return absl::OkStatus();
}

absl::StatusOr<Header> ParseHeader(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof(header)) return DataLoss("a KV frame in {} bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return DataLoss("a KV frame with magic {:08x}", header.magic);
  if (header.payload_bytes > bytes.size() - sizeof(header)) {
    return DataLoss("a KV frame of {} bytes in {}", sizeof(header) + header.payload_bytes,
                    bytes.size());
  }
  return header;
}

// What PutPayload wrote behind the header of a frame: the size of the payload, and whether it is
// encoded. PutPayload returns nothing when the payload does not fit.
struct Payload {
  size_t bytes;
  bool encoded;
  KeyBytes keys;
};
std::optional<Payload> PutPayload(const KvCodec* codec, const ExtentShape& shape,
                                  const ExtentPlace& place, std::span<const std::byte> raw,
                                  std::span<std::byte> out) {
  if (codec != nullptr) {
    const size_t most = std::min(out.size(), raw.size() - raw.size() / kLeastSaving);
    KeyBytes keys;
    if (const auto bytes = codec->Encode(shape, place, raw, out.first(most), &keys)) {
      return Payload{*bytes, true, keys};
    }
  }
  if (raw.size() > out.size()) return std::nullopt;
  std::memcpy(out.data(), raw.data(), raw.size());
  return Payload{raw.size(), false, {.bytes = raw.size() / 2}};
}

absl::Status CheckFrame(const KvCodec* codec, const Header& header, const ExtentShape& shape,
                        int32_t layer) {
  if (header.dtype != static_cast<uint8_t>(shape.dtype) || header.tokens != shape.tokens ||
      header.num_kv_heads != shape.num_kv_heads || header.head_dim != shape.head_dim) {
    return FailedPrecondition(
        "a KV frame of {} tokens, {} heads of {}, type {}: expected {}, {}, {}, {}", header.tokens,
        header.num_kv_heads, header.head_dim, header.dtype, shape.tokens, shape.num_kv_heads,
        shape.head_dim, static_cast<int>(shape.dtype));
  }
  if (header.codec == static_cast<uint8_t>(CodecId::kRaw)) return absl::OkStatus();
  if (codec == nullptr || header.codec != static_cast<uint8_t>(codec->id())) {
    return FailedPrecondition("a KV frame of codec {}: expected {}", header.codec,
                              codec == nullptr ? 0 : static_cast<int>(codec->id()));
  }
  if (header.tables != codec->tables_id() || !codec->Fits(shape, layer)) {
    return FailedPrecondition("a KV frame made with tables {:016x}: expected {:016x}",
                              header.tables, codec->tables_id());
  }
  return absl::OkStatus();
}

double UsualBytePlaneRatio(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
      return 1.18;
    case DType::kF8E4M3:
      return 1.22;
    default:
      return 1.44;
  }
}

}  // namespace

std::string_view CodecName(CodecId id) {
  switch (id) {
    case CodecId::kRaw:
      return "raw";
    case CodecId::kF3:
      return "f3";
    case CodecId::kMaskRice:
      return "mask-rice";
    case CodecId::kBytePlane:
      return "byte-plane";
    case CodecId::kRounded:
      return "rounded";
  }
  return "unknown";
}

double UsualRatio(CodecId id, DType dtype) {
  if (id == CodecId::kRaw || id == CodecId::kRounded) return 1;
  if (id == CodecId::kBytePlane) return UsualBytePlaneRatio(dtype);
  const bool is_f3 = id == CodecId::kF3;
  switch (dtype) {
    case DType::kF32:
      return is_f3 ? 1.176 : 1.199;
    case DType::kF16:
      return is_f3 ? 1.126 : 1.169;
    case DType::kF8E4M3:
      return is_f3 ? 1.110 : 1.196;
    default:
      return is_f3 ? 1.42 : 1.49;
  }
}

std::unique_ptr<KvCodec> NewKvCodec(CodecId id, std::shared_ptr<const CodecTables> tables) {
  if (id == CodecId::kBytePlane) return NewBytePlaneCodec();
  if (id == CodecId::kF3) return std::make_unique<codec::F3>(std::move(tables));
  return std::make_unique<codec::MaskRice>(std::move(tables));
}

absl::StatusOr<size_t> EncodeFrame(const KvCodec* codec, const ExtentShape& shape,
                                   const ExtentPlace& place, std::span<const std::byte> raw,
                                   std::span<std::byte> out, ExtentParts* parts) {
  RETURN_IF_ERROR(CheckShape(shape));
  if (raw.size() != shape.Bytes() || (codec != nullptr && !codec->Fits(shape, place.layer))) {
    return InvalidArgument("{} bytes of layer {}: the extent or its tables are of another shape",
                           raw.size(), place.layer);
  }
  const auto too_few = [&] {
    return ResourceExhausted("a KV frame does not fit into {} bytes", out.size());
  };
  if (out.size() < sizeof(Header)) return too_few();
  const auto payload = PutPayload(codec, shape, place, raw, out.subspan(sizeof(Header)));
  if (!payload) return too_few();
  const std::span<const std::byte> kept = out.subspan(sizeof(Header), payload->bytes);
  const bool changed = payload->encoded && !codec->lossless();
  const Header header = {
      .codec = static_cast<uint8_t>(payload->encoded ? codec->id() : CodecId::kRaw),
      .dtype = static_cast<uint8_t>(shape.dtype),
      .tokens = static_cast<uint16_t>(shape.tokens),
      .num_kv_heads = static_cast<uint16_t>(shape.num_kv_heads),
      .head_dim = static_cast<uint16_t>(shape.head_dim),
      .payload_bytes = static_cast<uint32_t>(payload->bytes),
      .tables = payload->encoded ? codec->tables_id() : 0,
      .hash = Hash64(changed ? kept : raw)};
  std::memcpy(out.data(), &header, sizeof(header));
  const size_t frame_bytes = sizeof(header) + payload->bytes;
  if (parts != nullptr) *parts = PartsFrom(shape, frame_bytes, payload->keys, !payload->encoded);
  return frame_bytes;
}

ExtentParts PartsFrom(const ExtentShape& shape, size_t frame_bytes, const KeyBytes& keys,
                      bool raw) {
  const uint64_t kv_bytes = shape.Bytes() / 2;
  const size_t key_bytes = kCodecHeaderBytes / 2 + keys.bytes;
  return {.k = {kv_bytes, key_bytes, keys.escapes},
          .v = {kv_bytes, frame_bytes - key_bytes, keys.all_escapes - keys.escapes},
          .raw = raw};
}

absl::StatusOr<size_t> FrameBytes(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const Header header, ParseHeader(bytes));
  return sizeof(header) + header.payload_bytes;
}

absl::StatusOr<FrameCodec> CodecOfFrame(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const Header header, ParseHeader(bytes));
  return FrameCodec{.codec = static_cast<CodecId>(header.codec),
                    .tables = header.tables,
                    .shape = {.dtype = static_cast<DType>(header.dtype),
                              .num_kv_heads = header.num_kv_heads,
                              .head_dim = header.head_dim,
                              .tokens = header.tokens}};
}

absl::Status DecodeFrame(const KvCodec* codec, const ExtentShape& shape, int32_t layer,
                         std::span<const std::byte> frame, std::span<std::byte> raw) {
  RETURN_IF_ERROR(CheckShape(shape));
  if (raw.size() != shape.Bytes()) {
    return InvalidArgument("{} bytes for an extent of {}", raw.size(), shape.Bytes());
  }
  ASSIGN_OR_RETURN(const Header header, ParseHeader(frame));
  const std::span<const std::byte> payload = frame.subspan(sizeof(header));
  if (payload.size() != header.payload_bytes) {
    return DataLoss("a KV frame of {} bytes in {}", sizeof(header) + header.payload_bytes,
                    frame.size());
  }
  RETURN_IF_ERROR(CheckFrame(codec, header, shape, layer));
  const bool encoded = header.codec != static_cast<uint8_t>(CodecId::kRaw);
  const bool changed = encoded && !codec->lossless();
  const auto wrong_hash = [] { return DataLoss("the hash of a KV frame is wrong"); };
  if (changed && Hash64(payload) != header.hash) return wrong_hash();
  if (encoded) {
    if (!codec->Decode(shape, layer, payload, raw)) {
      return DataLoss("a KV frame whose payload is none of {}", CodecName(codec->id()));
    }
  } else if (payload.size() == raw.size() && header.tables == 0) {
    std::memcpy(raw.data(), payload.data(), raw.size());
  } else {
    return DataLoss("a raw KV frame of {} bytes for an extent of {}", payload.size(), raw.size());
  }
  if (!changed && Hash64(raw) != header.hash) return wrong_hash();
  return absl::OkStatus();
}

}  // namespace tandem
