#include "kvstore/codec/quantised.h"

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "fmt/format.h"
#include "kvstore/codec/codecs.h"
#include "kvstore/codec/quantised_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvstore/codec/quantised.cc"
#include "hwy/foreach_target.h"
#include "kvstore/codec/code_planes-inl.h"
#include "kvstore/codec/quantised_group-inl.h"

// Encodes and decodes whole extents as integers. Encoding takes two passes: which number of low
// bits makes the codes smallest is known only when all codes are.

HWY_BEFORE_NAMESPACE();
namespace tandem::codec {
namespace HWY_NAMESPACE {

template <class Function>
HWY_INLINE void WithLanes(size_t lanes, Function function) {
  switch (lanes) {
    case 64:
      return function(std::integral_constant<size_t, 64>());
    case 32:
      return function(std::integral_constant<size_t, 32>());
    case 16:
      return function(std::integral_constant<size_t, 16>());
    default:
      return function(std::integral_constant<size_t, 8>());
  }
}

// As WithFields (float_fields.h), but only for the types that are quantised: f32, f16 and bf16.
template <class Function>
auto WithQuantisedFields(DType dtype, Function function) {
  if (dtype == DType::kF32) return function(F32Fields());
  if (dtype == DType::kF16) return function(F16Fields());
  return function(BF16Fields());
}

// Encodes an extent, whose words are those of Fields, as a payload.
template <class Fields>
class QuantisedWriter {
 public:
  QuantisedWriter(const ExtentShape& shape, const QuantisedHeader& header, const std::byte* raw,
                  std::span<std::byte> out)
      : shape_(shape), header_(header), raw_(raw), out_(out) {}

  // Writes the payload and returns its size; 0 when it does not fit. `keys` gets the part of K.
  size_t Write(KeyBytes& keys) {
    const QuantisedSizes sizes = QuantisedSizesOf(shape_, header_);
    if (out_.size() < sizes.ExactGroupsAt()) return 0;
    size_t at = sizeof(header_);
    ForEachExactRun(shape_, header_, [&](size_t raw_at, size_t bytes) {
      std::memcpy(out_.data() + at, raw_ + raw_at, bytes);
      at += bytes;
    });
    ranks_ = std::make_unique_for_overwrite<RowBytes[]>(sizes.groups);
    const size_t masks_at = PutGroups(sizes);
    if (masks_at == 0) return 0;
    for (const int side : {0, 1}) {
      header_.low_bits[side] = static_cast<uint8_t>(counts_[side].LowBits(header_.bits[side]));
    }
    std::memcpy(out_.data(), &header_, sizeof(header_));
    const size_t size = PutCodes(masks_at);
    keys = QuantisedKeys(shape_, header_, exact_, key_bits_);
    return size;
  }

 private:
  // Writes the scales and exact groups and returns where they end; 0 when they do not fit. The
  // ranks of the codes are kept for PutCodes.
  size_t PutGroups(const QuantisedSizes& sizes) {
    std::byte* scales = out_.data() + sizes.ScalesAt();
    RowBytes* ranks = ranks_.get();
    size_t at = sizes.ExactGroupsAt();
    const bool fits = ForEachGroup(shape_, header_, [&](const QuantisedGroup& group) {
      const uint16_t scale = QuantiseGroup(group, *ranks++);
      std::memcpy(scales, &scale, sizeof(scale));
      scales += sizeof(scale);
      if (scale != kExactGroup) return true;
      const size_t bytes = group.lanes * sizeof(typename Fields::Word);
      if (out_.size() - at < bytes) return false;
      std::memcpy(out_.data() + at, raw_ + group.raw_at, bytes);
      at += bytes;
      ++exact_.groups[group.side];
      exact_.bytes[group.side] += bytes;
      return true;
    });
    return fits ? at : 0;
  }

  HWY_INLINE uint16_t QuantiseGroup(const QuantisedGroup& group, RowBytes& ranks) {
    uint16_t scale = 0;
    WithLanes(group.lanes, [&](auto lanes) HWY_ATTR {
      const int bits = header_.bits[group.side];
      scale = Quantise<Fields, lanes>(raw_ + group.raw_at, bits, ranks);
      counts_[group.side].template Add<lanes>(ranks, bits);
    });
    return scale;
  }

  size_t PutCodes(size_t masks_at) {
    const std::span<std::byte> out = out_.subspan(masks_at);
    const size_t mask_bytes = QuantisedMaskBytes(shape_, header_);
    if (out.size() < mask_bytes + kLeastStreamBytes) return 0;
    RowWriter writer(out, mask_bytes);
    const RowBytes* ranks = ranks_.get();
    const bool fits = ForEachGroup(shape_, header_, [&](const QuantisedGroup& group) {
      if (!writer.HasRoomForRow()) return false;
      const CodePlanes planes = PlanesOf(header_, group.side);
      std::byte* const masks = writer.NextFixed(planes.masks() * group.lanes / 8);
      WithLanes(group.lanes,
                [&](auto lanes) HWY_ATTR { WritePlanes<lanes>(planes, *ranks, masks, writer); });
      ++ranks;
      if (group.side == 0) key_bits_ = writer.bits_written();
      return true;
    });
    return fits ? masks_at + writer.Finish() : 0;
  }

  const ExtentShape& shape_;
  QuantisedHeader header_;
  const std::byte* const raw_;
  const std::span<std::byte> out_;
  std::unique_ptr<RowBytes[]> ranks_;  // the ranks of each group
  RankCounts counts_[2];
  ExactGroups exact_;
  size_t key_bits_ = 0;  // bits of K in the stream
};

// Decodes what lies behind the header of a payload. Each part is checked to lie within the payload
// before it is read.
template <class Fields>
class QuantisedReader {
 public:
  QuantisedReader(const ExtentShape& shape, const QuantisedHeader& header,
                  std::span<const std::byte> payload, std::byte* raw)
      : shape_(shape), header_(header), payload_(payload), raw_(raw) {}

  bool Read() {
    const QuantisedSizes sizes = QuantisedSizesOf(shape_, header_);
    if (payload_.size() < sizes.ExactGroupsAt()) return false;
    size_t at = sizeof(header_);
    ForEachExactRun(shape_, header_, [&](size_t raw_at, size_t bytes) {
      std::memcpy(raw_ + raw_at, payload_.data() + at, bytes);
      at += bytes;
    });
    scales_ = payload_.data() + sizes.ScalesAt();
    exact_ = payload_.data() + sizes.ExactGroupsAt();
    const std::optional<size_t> exact_bytes = ExactGroupBytes();
    if (!exact_bytes || payload_.size() - sizes.ExactGroupsAt() < *exact_bytes) return false;
    return TakeCodes(payload_.subspan(sizes.ExactGroupsAt() + *exact_bytes));
  }

 private:
  uint16_t ScaleAt(size_t index) const {
    uint16_t scale;
    std::memcpy(&scale, scales_ + index * sizeof(scale), sizeof(scale));
    return scale;
  }

  // The size of all exact groups in bytes. Nothing when one of the scales is no valid scale.
  std::optional<size_t> ExactGroupBytes() const {
    size_t bytes = 0;
    size_t index = 0;
    const bool valid = ForEachGroup(shape_, header_, [&](const QuantisedGroup& group) {
      const uint16_t scale = ScaleAt(index++);
      if (scale == kExactGroup) bytes += group.lanes * sizeof(typename Fields::Word);
      return scale <= kExactGroup;
    });
    return valid ? std::optional(bytes) : std::nullopt;
  }

  bool TakeCodes(std::span<const std::byte> codes) {
    std::optional<RowReader> reader = RowReader::Of(codes, QuantisedMaskBytes(shape_, header_));
    if (!reader) return false;
    size_t index = 0;
    const bool valid = ForEachGroup(shape_, header_, [&](const QuantisedGroup& group) {
      bool is_right = false;
      WithLanes(group.lanes, [&](auto lanes) HWY_ATTR {
        is_right = TakeGroup<lanes>(group, ScaleAt(index), *reader);
      });
      ++index;
      return is_right;
    });
    return valid && reader->Ended();
  }

  template <size_t kLanes>
  HWY_INLINE bool TakeGroup(const QuantisedGroup& group, uint16_t scale, RowReader& reader) {
    const CodePlanes planes = PlanesOf(header_, group.side);
    RowBytes ranks = {};
    const ReadRanks read =
        ReadPlanes<kLanes>(planes, reader.NextFixed(planes.masks() * kLanes / 8), reader, ranks);
    if (scale != 0 && scale != kExactGroup) {
      Dequantise<Fields, kLanes>(ranks, scale, raw_ + group.raw_at);
      return read.valid;
    }
    constexpr size_t kBytes = kLanes * sizeof(typename Fields::Word);
    if (scale == 0) {
      std::memset(raw_ + group.raw_at, 0, kBytes);
    } else {
      std::memcpy(raw_ + group.raw_at, exact_, kBytes);
      exact_ += kBytes;
    }
    return !read.any;
  }

  const ExtentShape& shape_;
  const QuantisedHeader& header_;
  const std::span<const std::byte> payload_;
  std::byte* const raw_;
  const std::byte* scales_ = nullptr;
  const std::byte* exact_ = nullptr;  // the next exact group
};

size_t EncodeQuantised(const ExtentShape& shape, const QuantisedHeader& header,
                       const std::byte* raw, std::span<std::byte> out, KeyBytes& keys) {
  return WithQuantisedFields(shape.dtype, [&](auto fields) {
    return QuantisedWriter<decltype(fields)>(shape, header, raw, out).Write(keys);
  });
}

bool DecodeQuantised(const ExtentShape& shape, const QuantisedHeader& header,
                     std::span<const std::byte> payload, std::byte* raw) {
  return WithQuantisedFields(shape.dtype, [&](auto fields) {
    return QuantisedReader<decltype(fields)>(shape, header, payload, raw).Read();
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
namespace codec {
namespace {

HWY_EXPORT(EncodeQuantised);
HWY_EXPORT(DecodeQuantised);

class Quantised final : public KvCodec {
 public:
  explicit Quantised(QuantisedBits bits) : bits_(bits) {}

  CodecId id() const override { return CodecId::kQuantised; }
  std::string name() const override { return fmt::format("k{}v{}", bits_.k, bits_.v); }
  bool lossless() const override { return false; }
  uint64_t tables_id() const override { return 0; }
  bool Fits(const ExtentShape& shape, int32_t /*layer*/) const override {
    return shape.head_dim % 8 == 0 && (shape.dtype == DType::kF32 || shape.dtype == DType::kF16 ||
                                       shape.dtype == DType::kBF16);
  }
  bool Decode(const ExtentShape& shape, int32_t /*layer*/, std::span<const std::byte> payload,
              std::span<std::byte> raw) const override {
    const auto header = ParseQuantisedHeader(shape, payload);
    return header && HWY_DYNAMIC_DISPATCH(DecodeQuantised)(shape, *header, payload, raw.data());
  }

 private:
  std::optional<size_t> DoEncode(const ExtentShape& shape, const ExtentPlace& place,
                                 std::span<const std::byte> raw, std::span<std::byte> out,
                                 KeyBytes& keys) const override {
    const QuantisedHeader header = QuantisedHeaderOf(shape, place, bits_);
    const size_t size = HWY_DYNAMIC_DISPATCH(EncodeQuantised)(shape, header, raw.data(), out, keys);
    return size == 0 ? std::nullopt : std::optional(size);
  }

  const QuantisedBits bits_;
};

}  // namespace
}  // namespace codec

std::unique_ptr<KvCodec> NewQuantisedCodec(QuantisedBits bits) {
  for (const int32_t one : {bits.k, bits.v}) {
    TANDEM_CHECK(one >= kLeastQuantisedBits && one <= kMostQuantisedBits,
                 "KV is quantised to 3 to 8 bits");
  }
  return std::make_unique<codec::Quantised>(bits);
}

}  // namespace tandem
#endif  // HWY_ONCE
