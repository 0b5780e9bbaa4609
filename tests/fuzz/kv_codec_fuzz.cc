// KV frames of foreign bytes, and blobs of the earlier systems. The first byte chooses codec and
// type, the second the number of tokens.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "kvstore/codec/byte_plane_legacy.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/rounded.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};
constexpr CodecId kCodecs[] = {CodecId::kF3, CodecId::kMaskRice, CodecId::kBytePlane};
// Those that take every type, then the one that rounds; f8e4m3 does not fit the latter.
constexpr uint8_t kChoices = 4 * std::size(kCodecs) + 3;
constexpr size_t kTablesAt = 16;
constexpr size_t kHashAt = 24;

ExtentShape ShapeOf(uint8_t type, uint8_t tokens) {
  return {kTypes[type % 4], 2, 40, 1 + tokens % 8};
}

const KvCodec& CodecOf(uint8_t choice) {
  static const auto* const codecs = [] {
    auto* made = new std::vector<std::unique_ptr<KvCodec>>;
    for (size_t i = 0; i < 4 * std::size(kCodecs); ++i) {
      const auto tables = std::make_shared<const CodecTables>(
          TablesFor(ShapeOf(static_cast<uint8_t>(i % 4), 0), 1));
      made->push_back(NewKvCodec(kCodecs[i / 4], tables));
    }
    for (uint8_t type = 0; made->size() < kChoices; ++type) {
      made->push_back(NewRoundedCodec(
          std::make_shared<const CodecTables>(TablesFor(ShapeOf(type, 0), 1)), 0.2f));
    }
    return made;
  }();
  return *(*codecs)[choice];
}

// What decodes must come back from what it is encoded as, or at least decode again where the codec
// changes it.
void Decode(const KvCodec& codec, const ExtentShape& shape, std::span<const std::byte> frame) {
  std::vector<std::byte> raw(shape.Bytes());
  if (!DecodeFrame(&codec, shape, 0, frame, raw).ok()) return;
  std::vector<std::byte> again(MostFrameBytes(shape));
  const auto size = EncodeFrame(&codec, shape, {}, raw, again);
  TANDEM_CHECK(size.ok(), "an extent that was decoded cannot be encoded");
  std::vector<std::byte> back(raw.size());
  const absl::Status status = DecodeFrame(&codec, shape, 0, std::span(again).first(*size), back);
  TANDEM_CHECK(status.ok() && (!codec.lossless() || back == raw), "an extent does not come back");
}

// A header for these bytes as the payload: mutations break theirs nearly always.
std::vector<std::byte> WithHeader(const KvCodec& codec, const ExtentShape& shape,
                                  std::span<const std::byte> payload) {
  std::vector<std::byte> frame(MostFrameBytes(shape));
  const std::vector<std::byte> zeros(shape.Bytes());
  TANDEM_CHECK(EncodeFrame(&codec, shape, {}, zeros, frame).ok(), "zeros cannot be encoded");
  frame.resize(kCodecHeaderBytes + payload.size());
  const auto codec_id = static_cast<uint8_t>(codec.id());
  const auto size = static_cast<uint32_t>(payload.size());
  const uint64_t tables = codec.tables_id();
  std::memcpy(frame.data() + 4, &codec_id, sizeof(codec_id));
  std::memcpy(frame.data() + 12, &size, sizeof(size));
  std::memcpy(frame.data() + kTablesAt, &tables, sizeof(tables));
  std::ranges::copy(payload, frame.begin() + kCodecHeaderBytes);
  // Where the payload decodes, its own hash makes the frame a right one.
  std::vector<std::byte> raw(shape.Bytes());
  if (codec.Decode(shape, 0, payload, raw)) {
    const uint64_t hash = codec.lossless() ? Hash64(raw) : Hash64(payload);
    std::memcpy(frame.data() + kHashAt, &hash, sizeof(hash));
  }
  return frame;
}

// No bytes may make a blob larger than what is expected.
void DecodeBlob(std::span<const std::byte> blob) {
  constexpr size_t kMostBytes = 4096;
  for (const LegacyFloats floats : {LegacyFloats::kTwoBytes, LegacyFloats::kFourBytes}) {
    const auto decoded = DecodeLegacyBlob(floats, blob, kMostBytes);
    TANDEM_CHECK(!decoded.ok() || decoded->size() <= kMostBytes, "a blob is too large");
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  if (size < 2) return 0;
  const uint8_t choice = data[0] % kChoices;
  const KvCodec& codec = CodecOf(choice);
  const ExtentShape shape = ShapeOf(choice, data[1]);
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(2);
  Decode(codec, shape, bytes);
  Decode(codec, shape, WithHeader(codec, shape, bytes));
  DecodeBlob(bytes);
  return 0;
}
