#include "kvstore/codec/frame_parts.h"

#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "base/status.h"
#include "kvstore/codec/codecs.h"
#include "kvstore/codec/extent_rows.h"
#include "kvstore/codec/float_fields.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/plane_frame.h"
#include "kvstore/codec/rounded_layout.h"
#include "kvstore/codec/row_streams.h"

// Finds out how far K reaches into a payload. Rows of K come before those of V in every part of it,
// so counting the bits and escapes of K's rows is enough, and the masks say how many bits and
// escapes there are.

namespace tandem {
namespace codec {
namespace {

uint64_t MaskAt(const std::byte* bytes, size_t lanes) {
  uint64_t mask = 0;
  std::memcpy(&mask, bytes, lanes / 8);
  return mask;
}

// Takes the unary bits of a row from the stream: one for each of `among` channels says whether it
// goes on, then one for each channel that does, and so on at most `steps` times. Returns how many
// channels are left.
int TakeUnary(int among, int steps, RowReader& reader) {
  for (int step = 0; step < steps && among > 0; ++step) {
    among = std::popcount(reader.TakeBits(among));
  }
  return among;
}

// The masks that a row of f3 (F3Masks) and of mask-rice (RiceMasks) has beside sign and mantissa.
struct F3Masks {
  static constexpr size_t kMasks = 3;
  static int TakeEscapes(const std::byte* masks, size_t lanes, RowReader&) {
    const size_t bytes = lanes / 8;
    return std::popcount(MaskAt(masks, lanes) & MaskAt(masks + bytes, lanes) &
                         MaskAt(masks + 2 * bytes, lanes));
  }
};
struct RiceMasks {
  static constexpr size_t kMasks = 2;
  static int TakeEscapes(const std::byte* masks, size_t lanes, RowReader& reader) {
    constexpr int kSteps = CodecTables::kNoRank / 2 - 1;  // one step each for 4, 6, ... and kNoRank
    return TakeUnary(std::popcount(MaskAt(masks + lanes / 8, lanes)), kSteps, reader);
  }
};

// The part of K in a payload of f3 or mask-rice; nothing when the payload ends within it.
template <class Masks>
std::optional<KeyBytes> KeysInRows(const ExtentShape& shape, std::span<const std::byte> payload) {
  const size_t rest_bits = WithFields(
      shape.dtype, [](auto fields) { return static_cast<size_t>(decltype(fields)::kRestBits); });
  const auto row_bytes = [&](size_t lanes) { return lanes / 8 * (rest_bits + Masks::kMasks); };
  const size_t fixed = FixedBytes(shape, row_bytes);
  std::optional<RowReader> reader = RowReader::Of(payload, fixed);
  if (!reader) return std::nullopt;
  const size_t bits_from = reader->bit_position();
  const size_t all_escapes = reader->escapes_left();
  size_t key_escapes = 0;
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  for (int64_t i = 0; i < int64_t{shape.num_kv_heads} * shape.tokens; ++i) {
    for (size_t channel = 0; channel < head_dim; channel += kRowLanes) {
      const size_t lanes = std::min(kRowLanes, head_dim - channel);
      const std::byte* const row = reader->NextFixed(row_bytes(lanes));
      key_escapes +=
          static_cast<size_t>(Masks::TakeEscapes(row + lanes / 8 * rest_bits, lanes, *reader));
    }
    if (!reader->valid() || key_escapes > all_escapes) return std::nullopt;
  }
  return KeysOfRows(fixed, reader->bit_position() - bits_from, key_escapes, all_escapes);
}

std::optional<KeyBytes> KeysOfRounded(const ExtentShape& shape,
                                      std::span<const std::byte> payload) {
  const std::optional<RoundedHeader> header = ParseRoundedHeader(shape, payload);
  if (!header) return std::nullopt;
  if (payload.size() < RoundedPartsOf(shape, *header).ExactRowsAt()) return std::nullopt;
  return RoundedKeys(shape, *header, ExactRowsOf(shape, *header, payload));
}

// The part of K in a payload of byte-plane, where the planes of K come before those of V.
std::optional<KeyBytes> KeysOfPlanes(const ExtentShape& shape, std::span<const std::byte> payload) {
  constexpr uint8_t kAnyPredictor = std::numeric_limits<uint8_t>::max();
  std::span<const std::byte> left = payload;
  for (int64_t i = 0; i < SizeOf(shape.dtype); ++i) {
    if (!TakePlaneFrame(kAnyPredictor, left)) return std::nullopt;
  }
  return KeyBytes{.bytes = payload.size() - left.size()};
}

bool IsShape(const ExtentShape& shape) {
  const bool is_type = shape.dtype == DType::kF32 || shape.dtype == DType::kF16 ||
                       shape.dtype == DType::kBF16 || shape.dtype == DType::kF8E4M3;
  return is_type && shape.tokens >= 1 && shape.num_kv_heads >= 1 && shape.head_dim >= 8 &&
         shape.head_dim % 8 == 0;
}

std::optional<KeyBytes> KeysOf(const FrameCodec& frame, std::span<const std::byte> payload) {
  switch (frame.codec) {
    case CodecId::kRaw:
      if (payload.size() != frame.shape.Bytes()) return std::nullopt;
      return KeyBytes{.bytes = payload.size() / 2};
    case CodecId::kF3:
      return KeysInRows<F3Masks>(frame.shape, payload);
    case CodecId::kMaskRice:
      return KeysInRows<RiceMasks>(frame.shape, payload);
    case CodecId::kBytePlane:
      return KeysOfPlanes(frame.shape, payload);
    case CodecId::kRounded:
      return KeysOfRounded(frame.shape, payload);
  }
  return std::nullopt;
}

}  // namespace
}  // namespace codec

absl::StatusOr<ExtentParts> PartsOfFrame(std::span<const std::byte> frame) {
  ASSIGN_OR_RETURN(const size_t size, FrameBytes(frame));
  ASSIGN_OR_RETURN(const FrameCodec made, CodecOfFrame(frame));
  if (size != frame.size()) {
    return DataLoss("a KV frame of {} bytes in {}", size, frame.size());
  }
  if (!codec::IsShape(made.shape)) {
    return DataLoss("a KV frame of {} tokens, {} heads of {}, type {}: no extent is like that",
                    made.shape.tokens, made.shape.num_kv_heads, made.shape.head_dim,
                    static_cast<int>(made.shape.dtype));
  }
  const std::span<const std::byte> payload = frame.subspan(kCodecHeaderBytes);
  const std::optional<KeyBytes> keys = codec::KeysOf(made, payload);
  if (!keys || keys->bytes > payload.size()) {
    return DataLoss("a KV frame whose payload is none of codec {} ({})",
                    static_cast<int>(made.codec), CodecName(made.codec));
  }
  return PartsFrom(made.shape, frame.size(), *keys, made.codec == CodecId::kRaw);
}

}  // namespace tandem
