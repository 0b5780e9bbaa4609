#include "kvstore/codec/quantised.h"

#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>

#include "base/check.h"
#include "kvstore/codec/codecs.h"
#include "kvstore/codec/quantised_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvstore/codec/quantised.cc"
#include "hwy/foreach_target.h"
#include "kvstore/codec/code_planes-inl.h"
#include "kvstore/codec/float_words-inl.h"
#include "kvstore/codec/hadamard-inl.h"

// Integers per token and head: rotate a group of channels, divide by a scale of its own, round, and write
// what is left of most values in fewer bits than the largest needs. Two passes over an extent: how the
// codes are best written is known when all of them are.

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

// As WithFields, of the types that are quantised.
template <class Function>
auto WithQuantisedFields(DType dtype, Function function) {
  if (dtype == DType::kF32) return function(F32Fields());
  if (dtype == DType::kF16) return function(F16Fields());
  return function(BF16Fields());
}

// As words of an extent.
template <class Fields, size_t kLanes>
inline constexpr size_t kVectorBytes = GroupFloats<kLanes>::kOfVector *
                                       sizeof(typename Fields::Word);

template <class Fields, size_t kLanes>
HWY_INLINE GroupFloats<kLanes> Rotated(const std::byte* raw) {
  GroupFloats<kLanes> group;
  Unrolled<GroupFloats<kLanes>::kVectors>([&group, raw](auto i) HWY_ATTR {
    const typename GroupFloats<kLanes>::Tag d;
    group.at[i] = FloatWords<Fields>::Load(d, raw + i * kVectorBytes<Fields, kLanes>);
  });
  Rotate(group);
  return group;
}

// The largest magnitude. Compared as integers: infinity is above all numbers so, and NaN above infinity.
// An infinity or NaN among the channels is one in each of their sums.
template <size_t kLanes>
HWY_INLINE float MostOf(const GroupFloats<kLanes>& group) {
  using Tag = typename GroupFloats<kLanes>::Tag;
  const hn::RebindToSigned<Tag> di;
  auto most = hn::Zero(di);
  Unrolled<GroupFloats<kLanes>::kVectors>([&group, &most, di](auto i) HWY_ATTR {
    most = hn::Max(most, hn::BitCast(di, hn::Abs(group.at[i])));
  });
  return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, most)));
}

// Rounds the channels, times `factor`, to the nearest integers, even ones where two are as near.
template <size_t kLanes>
HWY_INLINE void RoundTo(const GroupFloats<kLanes>& group, float factor, RowBytes& codes) {
  Unrolled<GroupFloats<kLanes>::kVectors>([&group, &codes, factor](auto i) HWY_ATTR {
    using Tag = typename GroupFloats<kLanes>::Tag;
    const Tag d;
    const hn::RebindToUnsigned<Tag> du;
    const hn::Rebind<uint8_t, Tag> d8;
    // A float that large has steps of 1, and its lowest bits are those of the integer.
    const auto rounded = hn::Add(hn::Mul(group.at[i], hn::Set(d, factor)), hn::Set(d, 0x1.8p23f));
    hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, rounded)), d8,
               codes.at + i * GroupFloats<kLanes>::kOfVector);
  });
}

template <size_t kLanes>
HWY_INLINE GroupFloats<kLanes> FloatsOf(const RowBytes& codes, float factor) {
  GroupFloats<kLanes> group;
  Unrolled<GroupFloats<kLanes>::kVectors>([&group, &codes, factor](auto i) HWY_ATTR {
    using Tag = typename GroupFloats<kLanes>::Tag;
    const Tag d;
    const hn::RebindToSigned<Tag> di;
    const hn::Rebind<int8_t, Tag> d8;
    const auto* const at =
        reinterpret_cast<const int8_t*>(codes.at + i * GroupFloats<kLanes>::kOfVector);
    group.at[i] =
        hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, at))), hn::Set(d, factor));
  });
  return group;
}

template <class Fields, size_t kLanes>
HWY_INLINE void StoreGroup(const GroupFloats<kLanes>& group, std::byte* raw) {
  Unrolled<GroupFloats<kLanes>::kVectors>([&group, raw](auto i) HWY_ATTR {
    const typename GroupFloats<kLanes>::Tag d;
    FloatWords<Fields>::Store(group.at[i], d, raw + i * kVectorBytes<Fields, kLanes>);
  });
}

// The scale of a group and the ranks of its codes.
template <class Fields, size_t kLanes>
HWY_INLINE uint16_t Quantise(const std::byte* raw, int bits, RowBytes& ranks) {
  const GroupFloats<kLanes> group = Rotated<Fields, kLanes>(raw);
  const auto most_code = static_cast<float>((1 << (bits - 1)) - 1);
  // Divided rather than multiplied by an inverse: a scale that is an f16 is not rounded up to the next one.
  const uint16_t scale = HalfAtLeast(MostOf(group) * kRotationNorm<kLanes> / most_code);
  if (scale == 0 || scale == kExactGroup) {
    ranks = {};
    return scale;
  }
  RoundTo(group, kRotationNorm<kLanes> / FloatOfHalf(scale), ranks);
  ZigzagOf(ranks);
  return scale;
}

template <class Fields, size_t kLanes>
HWY_INLINE void Dequantise(RowBytes& ranks, uint16_t scale, std::byte* raw) {
  CodesOf(ranks);
  GroupFloats<kLanes> group = FloatsOf<kLanes>(ranks, FloatOfHalf(scale) * kRotationNorm<kLanes>);
  Rotate(group);
  StoreGroup<Fields>(group, raw);
}

template <class Fields>
class QuantisedWriter {
 public:
  QuantisedWriter(const ExtentShape& shape, const QuantisedHeader& header, const std::byte* raw,
                  std::span<std::byte> out)
      : shape_(shape), header_(header), raw_(raw), out_(out) {}

  // The size of the payload; 0 when it does not fit.
  size_t Write() {
    const QuantisedSizes sizes = QuantisedSizesOf(shape_, header_);
    if (out_.size() < sizes.ExactGroupsAt()) return 0;
    size_t at = sizeof(header_);
    ForEachExactRun(shape_, header_, [&](size_t raw_at, size_t bytes) {
      std::memcpy(out_.data() + at, raw_ + raw_at, bytes);
      at += bytes;
    });
    ranks_ =
        std::make_unique_for_overwrite<uint8_t[]>(shape_.Bytes() / sizeof(typename Fields::Word));
    const size_t masks_at = PutGroups(sizes);
    if (masks_at == 0) return 0;
    for (const int side : {0, 1}) {
      header_.low_bits[side] = static_cast<uint8_t>(counts_[side].LowBits(header_.bits[side]));
    }
    std::memcpy(out_.data(), &header_, sizeof(header_));
    return PutCodes(masks_at);
  }

 private:
  // Scales and exact groups, whose end it returns; the ranks are kept. 0 when they do not fit.
  size_t PutGroups(const QuantisedSizes& sizes) {
    std::byte* scales = out_.data() + sizes.ScalesAt();
    uint8_t* ranks = ranks_.get();
    size_t at = sizes.ExactGroupsAt();
    const bool fits = ForEachGroup(shape_, header_, [&](const QuantisedGroup& group) {
      const uint16_t scale = QuantiseGroup(group, ranks);
      std::memcpy(scales, &scale, sizeof(scale));
      scales += sizeof(scale);
      ranks += group.lanes;
      if (scale != kExactGroup) return true;
      const size_t bytes = group.lanes * sizeof(typename Fields::Word);
      if (out_.size() - at < bytes) return false;
      std::memcpy(out_.data() + at, raw_ + group.raw_at, bytes);
      at += bytes;
      return true;
    });
    return fits ? at : 0;
  }

  HWY_INLINE uint16_t QuantiseGroup(const QuantisedGroup& group, uint8_t* to) {
    uint16_t scale = 0;
    WithLanes(group.lanes, [&](auto lanes) HWY_ATTR {
      const int bits = header_.bits[group.side];
      RowBytes ranks;
      scale = Quantise<Fields, lanes>(raw_ + group.raw_at, bits, ranks);
      counts_[group.side].template Add<lanes>(ranks, bits);
      std::memcpy(to, ranks.at, lanes);
    });
    return scale;
  }

  size_t PutCodes(size_t masks_at) {
    const std::span<std::byte> out = out_.subspan(masks_at);
    const size_t mask_bytes = QuantisedMaskBytes(shape_, header_);
    if (out.size() < mask_bytes + kLeastStreamBytes) return 0;
    RowWriter writer(out, mask_bytes);
    const uint8_t* from = ranks_.get();
    const bool fits = ForEachGroup(shape_, header_, [&](const QuantisedGroup& group) {
      if (!writer.HasRoomForRow()) return false;
      const CodePlanes planes = PlanesOf(header_, group.side);
      std::byte* const masks = writer.NextFixed(planes.masks() * group.lanes / 8);
      WithLanes(group.lanes, [&](auto lanes) HWY_ATTR {
        RowBytes ranks;
        std::memcpy(ranks.at, from, lanes);
        WritePlanes<lanes>(planes, ranks, masks, writer);
      });
      from += group.lanes;
      return true;
    });
    return fits ? masks_at + writer.Finish() : 0;
  }

  const ExtentShape& shape_;
  QuantisedHeader header_;
  const std::byte* const raw_;
  const std::span<std::byte> out_;
  std::unique_ptr<uint8_t[]> ranks_;  // of the groups, one after another
  RankCounts counts_[2];
};

// What is behind the header of a payload, whose parts are known to lie within it.
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

  // Nothing when a scale is none.
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
                       const std::byte* raw, std::span<std::byte> out) {
  return WithQuantisedFields(shape.dtype, [&](auto fields) {
    return QuantisedWriter<decltype(fields)>(shape, header, raw, out).Write();
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
  bool lossless() const override { return false; }
  uint64_t tables_id() const override { return 0; }
  bool Fits(const ExtentShape& shape, int32_t /*layer*/) const override {
    return shape.head_dim % 8 == 0 && (shape.dtype == DType::kF32 || shape.dtype == DType::kF16 ||
                                       shape.dtype == DType::kBF16);
  }
  std::optional<size_t> Encode(const ExtentShape& shape, const ExtentPlace& place,
                               std::span<const std::byte> raw,
                               std::span<std::byte> out) const override {
    const QuantisedHeader header = QuantisedHeaderOf(shape, place, bits_);
    const size_t size = HWY_DYNAMIC_DISPATCH(EncodeQuantised)(shape, header, raw.data(), out);
    return size == 0 ? std::nullopt : std::optional(size);
  }
  bool Decode(const ExtentShape& shape, int32_t /*layer*/, std::span<const std::byte> payload,
              std::span<std::byte> raw) const override {
    const auto header = ParseQuantisedHeader(shape, payload);
    return header && HWY_DYNAMIC_DISPATCH(DecodeQuantised)(shape, *header, payload, raw.data());
  }

 private:
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
