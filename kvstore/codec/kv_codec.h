#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "kvstore/codec/codec_tables.h"
#include "kvstore/codec/extent_parts.h"
#include "kvstore/codec/extent_shape.h"

namespace tandem {

// Codecs of KV extents. A frame holds one encoded extent and names its codec and shape
// (docs/kv_codecs.md).
// 4 was a codec that no build writes or reads any more.
enum class CodecId : uint8_t { kRaw = 0, kF3 = 1, kMaskRice = 2, kBytePlane = 3, kRounded = 5 };

// The name of a codec: "raw", "f3", "mask-rice", "byte-plane" or "rounded"; "unknown" for any
// other value.
std::string_view CodecName(CodecId id);

// How many times smaller a codec usually makes KV of a type, not counting the headers of frames. It
// was measured on the KV of two language models; the ratios of prompts and languages differ by less
// than a hundredth. The ratio of byte-plane was measured on one model and differs from text to text
// by a twentieth. 1 for kRounded, whose ratio depends on the step.
double UsualRatio(CodecId id, DType dtype);

// The place of an extent, as far as it matters to how the extent is encoded.
struct ExtentPlace {
  int32_t layer = 0;
  // The number of tokens at the front of the extent that a codec which changes KV keeps as they are.
  int32_t exact_front = 0;
};

// Encodes and decodes the payload of frames, which is the part behind the header. Thread-safe:
// nothing changes after the construction.
class KvCodec {
 public:
  virtual ~KvCodec() = default;
  virtual CodecId id() const = 0;
  // As users know it: CodecName, or the step of a codec that rounds ("step0.1").
  virtual std::string name() const { return std::string(CodecName(id())); }
  // Whether a decoded extent has the very bits that were encoded.
  virtual bool lossless() const = 0;
  // Names the tables that frames are made with; 0 for a codec that has none.
  virtual uint64_t tables_id() const = 0;
  // Whether it encodes extents of this shape and layer, whatever their number of tokens.
  virtual bool Fits(const ExtentShape& shape, int32_t layer) const = 0;

  // Encodes an extent that it fits into `out` and returns the size, or nothing when it would take
  // more than `out` has. `raw` has shape.Bytes() bytes. `keys`, unless it is null, gets the size of
  // K's part.
  std::optional<size_t> Encode(const ExtentShape& shape, const ExtentPlace& place,
                               std::span<const std::byte> raw, std::span<std::byte> out,
                               KeyBytes* keys = nullptr) const {
    KeyBytes unused;
    return DoEncode(shape, place, raw, out, keys == nullptr ? unused : *keys);
  }
  // Decodes into `raw`. False when `payload` is not what Encode makes of any extent of that shape;
  // what is in `raw` is then of no use.
  virtual bool Decode(const ExtentShape& shape, int32_t layer, std::span<const std::byte> payload,
                      std::span<std::byte> raw) const = 0;

 private:
  virtual std::optional<size_t> DoEncode(const ExtentShape& shape, const ExtentPlace& place,
                                         std::span<const std::byte> raw, std::span<std::byte> out,
                                         KeyBytes& keys) const = 0;
};

// Creates the codec `id`, which is f3, mask-rice or byte-plane. Only byte-plane needs no tables.
std::unique_ptr<KvCodec> NewKvCodec(CodecId id, std::shared_ptr<const CodecTables> tables);

inline constexpr size_t kCodecHeaderBytes = 32;
// The largest size of a frame with an extent of `shape`, in bytes.
inline size_t MostFrameBytes(const ExtentShape& shape) { return kCodecHeaderBytes + shape.Bytes(); }

// Makes a frame of an extent and returns its size. The frame is encoded with `codec`, or raw when
// `codec` is null or saves less than a twentieth. `parts`, unless it is null, gets the sizes of K
// and V. INVALID_ARGUMENT for a shape that the codec does not fit, RESOURCE_EXHAUSTED when `out`
// has too few bytes.
absl::StatusOr<size_t> EncodeFrame(const KvCodec* codec, const ExtentShape& shape,
                                   const ExtentPlace& place, std::span<const std::byte> raw,
                                   std::span<std::byte> out, ExtentParts* parts = nullptr);

// The sizes of K and V in a frame of `frame_bytes` bytes, where `keys` is the part of K in the
// payload.
ExtentParts PartsFrom(const ExtentShape& shape, size_t frame_bytes, const KeyBytes& keys, bool raw);

// The size of the frame that `bytes` begin with. DATA_LOSS when they do not begin with one, or end
// before it does.
absl::StatusOr<size_t> FrameBytes(std::span<const std::byte> bytes);

// What a frame was made with.
struct FrameCodec {
  CodecId codec = CodecId::kRaw;  // may be a value that names no codec
  uint64_t tables = 0;            // KvCodec::tables_id
  ExtentShape shape = {};         // as the frame says, which may be a shape that no extent has
};
// Reads the header of the frame that `bytes` begin with. DATA_LOSS under the same conditions as
// FrameBytes.
absl::StatusOr<FrameCodec> CodecOfFrame(std::span<const std::byte> bytes);

// Decodes a frame into `raw`, which has shape.Bytes() bytes. DATA_LOSS when it is damaged,
// FAILED_PRECONDITION when it is of another shape, or was made with a codec or tables other than
// those of `codec` (null: raw frames alone). `frame` has exactly the bytes of the frame.
absl::Status DecodeFrame(const KvCodec* codec, const ExtentShape& shape, int32_t layer,
                         std::span<const std::byte> frame, std::span<std::byte> raw);

}  // namespace tandem
