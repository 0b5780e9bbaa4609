#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "kvstore/codec/kv_codec.h"

namespace tandem::codec {

// One extent, and the tables that its rows are coded with.
struct CodecExtent {
  const ExtentShape& shape;
  int32_t layer;
  const CodecTables& tables;
};

// The least room in bytes that an encoder needs for the stream of bits when it starts: more than
// any one row takes.
inline constexpr size_t kLeastStreamBytes = 256;

// The part of K in a payload that a RowWriter wrote, of which `fixed` bytes have a known size.
inline KeyBytes KeysOfRows(size_t fixed, size_t key_bits, size_t key_escapes, size_t all_escapes) {
  return {.bytes = fixed / 2 + sizeof(uint32_t) / 2 + (key_bits + 7) / 8 + key_escapes,
          .escapes = key_escapes,
          .all_escapes = all_escapes};
}

// A codec that encodes the exponents of floats by CodecTables and keeps their signs and mantissas
// as they are.
class ExponentCodec : public KvCodec {
 public:
  explicit ExponentCodec(std::shared_ptr<const CodecTables> tables) : tables_(std::move(tables)) {}

  bool lossless() const override { return true; }
  uint64_t tables_id() const override { return tables_->id(); }
  bool Fits(const ExtentShape& shape, int32_t layer) const override {
    return tables_->Fit(shape, layer);
  }
  bool Decode(const ExtentShape& shape, int32_t layer, std::span<const std::byte> payload,
              std::span<std::byte> raw) const override {
    return DecodeRows({shape, layer, *tables_}, payload, raw.data());
  }

 private:
  std::optional<size_t> DoEncode(const ExtentShape& shape, const ExtentPlace& place,
                                 std::span<const std::byte> raw, std::span<std::byte> out,
                                 KeyBytes& keys) const override {
    const size_t size = EncodeRows({shape, place.layer, *tables_}, raw.data(), out, keys);
    return size == 0 ? std::nullopt : std::optional(size);
  }
  // Encodes an extent into `out` and returns the size of the payload; 0 when `out` has too few
  // bytes for it.
  virtual size_t EncodeRows(const CodecExtent& extent, const std::byte* raw,
                            std::span<std::byte> out, KeyBytes& keys) const = 0;
  virtual bool DecodeRows(const CodecExtent& extent, std::span<const std::byte> payload,
                          std::byte* raw) const = 0;

  const std::shared_ptr<const CodecTables> tables_;
};

class MaskRice final : public ExponentCodec {
 public:
  using ExponentCodec::ExponentCodec;
  CodecId id() const override { return CodecId::kMaskRice; }

 private:
  size_t EncodeRows(const CodecExtent& extent, const std::byte* raw, std::span<std::byte> out,
                    KeyBytes& keys) const override;
  bool DecodeRows(const CodecExtent& extent, std::span<const std::byte> payload,
                  std::byte* raw) const override;
};

class F3 final : public ExponentCodec {
 public:
  using ExponentCodec::ExponentCodec;
  CodecId id() const override { return CodecId::kF3; }

 private:
  size_t EncodeRows(const CodecExtent& extent, const std::byte* raw, std::span<std::byte> out,
                    KeyBytes& keys) const override;
  bool DecodeRows(const CodecExtent& extent, std::span<const std::byte> payload,
                  std::byte* raw) const override;
};

}  // namespace tandem::codec
