#include "kvstore/tier/store_block.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"
#include "kvstore/kv_layout.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "store blocks are little-endian");

// Offsets of the header's fields; the checksums follow, and behind them the header's own hash.
constexpr size_t kVersionAt = 4;
constexpr size_t kCodecAt = 6;
constexpr size_t kReservedAt = 7;
constexpr size_t kFingerprintAt = 8;
constexpr size_t kChainedHashAt = 16;
constexpr size_t kTokensAt = 24;
constexpr size_t kLayersAt = 28;
constexpr size_t kChecksumsAt = 32;

template <typename T>
void Put(std::span<std::byte> out, size_t at, T value) {
  std::memcpy(out.subspan(at, sizeof(T)).data(), &value, sizeof(T));
}

template <typename T>
T Get(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.subspan(at, sizeof(T)).data(), sizeof(T));
  return value;
}

absl::Status CheckFields(const StoreBlockHeader& header, uint8_t reserved) {
  if (header.codec > CodecId::kMaskRice) {
    return InvalidArgument("store block: codec={}: this build knows 0 (raw) to {} ({})",
                           static_cast<int>(header.codec), static_cast<int>(CodecId::kMaskRice),
                           CodecName(CodecId::kMaskRice));
  }
  if (reserved != 0) return InvalidArgument("store block: reserved byte={}: must be 0", reserved);
  if (header.tokens < 1 || header.tokens > kMaxBlockTokens) {
    return InvalidArgument("store block: tokens={}: must lie between 1 and {}", header.tokens,
                           kMaxBlockTokens);
  }
  return absl::OkStatus();
}

}  // namespace

size_t RoundUpForStore(size_t bytes) {
  return (bytes + kStoreAlignment - 1) / kStoreAlignment * kStoreAlignment;
}

size_t StoreHeaderBytes(int32_t num_layers) {
  return kChecksumsAt + (static_cast<size_t>(num_layers) + 1) * sizeof(uint64_t);
}

void EncodeStoreBlockHeader(const StoreBlockHeader& header, std::span<std::byte> out) {
  const size_t size = StoreHeaderBytes(static_cast<int32_t>(header.checksums.size()));
  TANDEM_CHECK(out.size() == size, "a header in a place of another size");
  Put(out, 0, kStoreBlockMagic);
  Put(out, kVersionAt, kStoreBlockVersion);
  Put(out, kCodecAt, header.codec);
  Put(out, kReservedAt, uint8_t{0});
  Put(out, kFingerprintAt, header.layout_fingerprint);
  Put(out, kChainedHashAt, header.chained_hash);
  Put(out, kTokensAt, header.tokens);
  Put(out, kLayersAt, static_cast<uint32_t>(header.checksums.size()));
  size_t at = kChecksumsAt;
  for (const uint64_t checksum : header.checksums) {
    Put(out, at, checksum);
    at += sizeof(checksum);
  }
  Put(out, at, Hash64(out.first(at)));
}

absl::StatusOr<StoreBlockHeader> ParseStoreBlockHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < StoreHeaderBytes(1) || Get<uint32_t>(bytes, 0) != kStoreBlockMagic) {
    return DataLoss("{} bytes do not begin with a store block", bytes.size());
  }
  const auto num_layers = Get<uint32_t>(bytes, kLayersAt);
  if (num_layers < 1 || num_layers > kMaxKvLayers) {
    return DataLoss("store block: num_layers={}: must lie between 1 and {}", num_layers,
                    kMaxKvLayers);
  }
  const size_t size = StoreHeaderBytes(static_cast<int32_t>(num_layers));
  if (bytes.size() < size) {
    return DataLoss("store block: its header has {} bytes, {} are there", size, bytes.size());
  }
  const size_t hash_at = size - sizeof(uint64_t);
  if (Get<uint64_t>(bytes, hash_at) != Hash64(bytes.first(hash_at))) {
    return DataLoss("store block: the hash of its header is wrong");
  }
  if (const auto version = Get<uint16_t>(bytes, kVersionAt); version != kStoreBlockVersion) {
    return FailedPrecondition("store block of version {}: this build reads {}", version,
                              kStoreBlockVersion);
  }
  StoreBlockHeader header = {.codec = Get<CodecId>(bytes, kCodecAt),
                             .layout_fingerprint = Get<uint64_t>(bytes, kFingerprintAt),
                             .chained_hash = Get<uint64_t>(bytes, kChainedHashAt),
                             .tokens = Get<uint32_t>(bytes, kTokensAt),
                             .checksums = {}};
  RETURN_IF_ERROR(CheckFields(header, Get<uint8_t>(bytes, kReservedAt)));
  for (size_t at = kChecksumsAt; at < hash_at; at += sizeof(uint64_t)) {
    header.checksums.push_back(Get<uint64_t>(bytes, at));
  }
  return header;
}

StoreBlockShape::StoreBlockShape(const KvLayout& layout)
    : StoreBlockShape(layout, static_cast<int32_t>(
                                  std::max<int64_t>(kStoreBlockTokens / layout.block_tokens, 1))) {}

StoreBlockShape StoreBlockShape::Fitting(const KvLayout& layout, size_t bytes) {
  StoreBlockShape shape(layout);
  while (shape.num_blocks() > 0 && shape.total_bytes() > bytes) {
    shape = StoreBlockShape(layout, shape.num_blocks() - 1);
  }
  return shape;
}

StoreBlockShape::StoreBlockShape(const KvLayout& layout, int32_t num_blocks)
    : num_layers_(layout.num_layers),
      block_tokens_(layout.block_tokens),
      num_blocks_(num_blocks),
      extent_bytes_(static_cast<size_t>(layout.ExtentBytes())),
      slices_at_(RoundUpForStore(StoreHeaderBytes(layout.num_layers))),
      slice_bytes_(RoundUpForStore(num_blocks_ * extent_bytes_)) {}

std::span<std::byte> StoreBlockShape::Extent(std::span<std::byte> slab, int32_t layer,
                                             int32_t index) const {
  TANDEM_CHECK(layer >= 0 && layer < num_layers_ && index >= 0 && index < num_blocks_,
               "an extent outside the store block");
  return slab.subspan(slices_at_ + layer * slice_bytes_ + index * extent_bytes_, extent_bytes_);
}

std::span<const std::byte> StoreBlockShape::Slice(std::span<const std::byte> slab, int32_t layer,
                                                  int32_t num_blocks) const {
  return slab.subspan(slices_at_ + layer * slice_bytes_, num_blocks * extent_bytes_);
}

void SealStoreBlock(const StoreBlockShape& shape, const StoreBlockName& name,
                    std::span<std::byte> slab) {
  StoreBlockHeader header = {.codec = CodecId::kRaw,
                             .layout_fingerprint = name.layout_fingerprint,
                             .chained_hash = name.chained_hash,
                             .tokens = static_cast<uint32_t>(shape.TokensOf(name.num_blocks)),
                             .checksums = {}};
  for (int32_t layer = 0; layer < shape.num_layers(); ++layer) {
    header.checksums.push_back(Hash64(shape.Slice(slab, layer, name.num_blocks)));
  }
  EncodeStoreBlockHeader(header, slab.first(StoreHeaderBytes(shape.num_layers())));
}

absl::Status CheckStoreBlock(const StoreBlockShape& shape, const StoreBlockName& name,
                             CodecId codec, const StoreBlockHeader& header) {
  if (header.codec != codec) {
    return DataLoss("store block {:016x} of codec {} where one of {} was put", header.chained_hash,
                    CodecName(header.codec), CodecName(codec));
  }
  if (header.layout_fingerprint != name.layout_fingerprint ||
      header.chained_hash != name.chained_hash ||
      header.tokens != shape.TokensOf(name.num_blocks) ||
      header.checksums.size() != static_cast<size_t>(shape.num_layers())) {
    return DataLoss("store block {:016x} of layout {:016x} where {:016x} of {:016x} was put",
                    header.chained_hash, header.layout_fingerprint, name.chained_hash,
                    name.layout_fingerprint);
  }
  return absl::OkStatus();
}

absl::Status VerifyStoreBlock(const StoreBlockShape& shape, const StoreBlockName& name,
                              std::span<const std::byte> slab) {
  ASSIGN_OR_RETURN(const StoreBlockHeader header, ParseStoreBlockHeader(slab));
  RETURN_IF_ERROR(CheckStoreBlock(shape, name, CodecId::kRaw, header));
  for (int32_t layer = 0; layer < shape.num_layers(); ++layer) {
    if (Hash64(shape.Slice(slab, layer, name.num_blocks)) != header.checksums[layer]) {
      return DataLoss("store block {:016x}: the checksum of layer {} is wrong", name.chained_hash,
                      layer);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
