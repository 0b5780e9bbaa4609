#include "kvstore/tier/store_encoder.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"

namespace tandem {
namespace {

// How many times larger a slab is than what the KV in it usually takes.
constexpr double kReserve = 1.025;
// In an extent smaller than this, the parts of a frame that do not depend on the KV outweigh what
// encoding saves.
constexpr size_t kLeastExtentBytes = 2048;

size_t SlabBytes(const ExtentShape& extent, const StoreBlockShape& shape, CodecId codec) {
  const auto extents = static_cast<double>(shape.num_layers()) * shape.num_blocks();
  const double frame =
      static_cast<double>(extent.Bytes()) * kReserve / UsualRatio(codec, extent.dtype) +
      kCodecHeaderBytes;
  return RoundUpForStore(StoreHeaderBytes(shape.num_layers()) +
                         static_cast<size_t>(frame * extents));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreEncoder>> StoreEncoder::Create(const KvLayout& layout,
                                                                   CodecId codec) {
  if (IsQuantisedKv(layout.dtype)) {
    return InvalidArgument("host codec {}: KV of type {} has no floats to encode: keep KV raw",
                           CodecName(codec), Name(layout.dtype));
  }
  if (static_cast<size_t>(layout.ExtentBytes()) < kLeastExtentBytes) {
    return InvalidArgument(
        "host codec {}: a layer of a block has {} bytes, fewer than {}: keep KV raw",
        CodecName(codec), layout.ExtentBytes(), kLeastExtentBytes);
  }
  std::unique_ptr<StoreEncoder> encoder(new StoreEncoder(layout, codec));
  // Swapped sequences lie raw in the same slabs, so at least one raw block must fit.
  if (StoreBlockShape::Fitting(layout, encoder->slab_bytes()).num_blocks() == 0) {
    return InvalidArgument("host codec {}: blocks of {} tokens are too large: use at most {}",
                           CodecName(codec), layout.block_tokens, kStoreBlockTokens / 2);
  }
  return encoder;
}

StoreEncoder::StoreEncoder(const KvLayout& layout, CodecId codec)
    : id_(codec),
      extent_{layout.dtype, layout.num_kv_heads, layout.head_dim, layout.block_tokens},
      shape_(layout),
      slab_bytes_(SlabBytes(extent_, shape_, codec)),
      calibrator_(std::in_place, extent_, layout.num_layers) {}

std::shared_ptr<const KvCodec> StoreEncoder::codec() const {
  absl::MutexLock lock(&mutex_);
  return codec_;
}

absl::Status StoreEncoder::Seal(const StoreBlockName& name, std::span<const std::byte> raw,
                                std::span<std::byte> slab) {
  const std::shared_ptr<const KvCodec> codec = this->codec();
  absl::Status status = codec == nullptr ? Calibrate(name, raw) : Encode(*codec, name, raw, slab);
  if (!status.ok()) unfit_blocks_ += name.num_blocks;
  return status;
}

absl::Status StoreEncoder::Calibrate(const StoreBlockName& name, std::span<const std::byte> raw) {
  for (int32_t layer = 0; layer < shape_.num_layers(); ++layer) {
    const auto slice = shape_.Slice(raw, layer, name.num_blocks);
    for (int32_t block = 0; block < name.num_blocks; ++block) {
      calibrator_->Add(
          layer, slice.subspan(static_cast<size_t>(block) * extent_.Bytes(), extent_.Bytes()));
    }
  }
  calibrated_tokens_ += shape_.TokensOf(name.num_blocks);
  if (calibrated_tokens_ >= CodecCalibrator::kEnoughTokens) {
    const auto tables = std::make_shared<const CodecTables>(calibrator_->Build());
    calibrator_.reset();
    LogInfo("host_kv_codec codec={} tables={:016x} tokens={}", CodecName(id_), tables->id(),
            calibrated_tokens_);
    absl::MutexLock lock(&mutex_);
    codec_ = NewKvCodec(id_, tables);
  }
  return FailedPrecondition("the tables of {} are being made: this KV is not kept", CodecName(id_));
}

absl::Status StoreEncoder::Encode(const KvCodec& codec, const StoreBlockName& name,
                                  std::span<const std::byte> raw, std::span<std::byte> slab) {
  StoreBlockHeader header = {.codec = id_,
                             .layout_fingerprint = name.layout_fingerprint,
                             .chained_hash = name.chained_hash,
                             .tokens = static_cast<uint32_t>(shape_.TokensOf(name.num_blocks)),
                             .checksums = {}};
  const size_t header_bytes = StoreHeaderBytes(shape_.num_layers());
  size_t at = header_bytes;
  for (int32_t layer = 0; layer < shape_.num_layers(); ++layer) {
    const size_t first = at;
    const auto slice = shape_.Slice(raw, layer, name.num_blocks);
    for (int32_t block = 0; block < name.num_blocks; ++block) {
      const auto extent =
          slice.subspan(static_cast<size_t>(block) * extent_.Bytes(), extent_.Bytes());
      ASSIGN_OR_RETURN(const size_t size,
                       EncodeFrame(&codec, extent_, {.layer = layer}, extent, slab.subspan(at)));
      at += size;
    }
    header.checksums.push_back(Hash64(slab.subspan(first, at - first)));
  }
  EncodeStoreBlockHeader(header, slab.first(header_bytes));
  raw_bytes_ += static_cast<int64_t>(extent_.Bytes()) * name.num_blocks * shape_.num_layers();
  stored_bytes_ += static_cast<int64_t>(at);
  return absl::OkStatus();
}

absl::Status StoreEncoder::Open(const StoreBlockName& name, std::span<const std::byte> slab,
                                std::span<std::byte> raw) const {
  ASSIGN_OR_RETURN(const StoreBlockHeader header, ParseStoreBlockHeader(slab));
  RETURN_IF_ERROR(CheckStoreBlock(shape_, name, id_, header));
  const std::shared_ptr<const KvCodec> codec = this->codec();
  size_t at = StoreHeaderBytes(shape_.num_layers());
  for (int32_t layer = 0; layer < shape_.num_layers(); ++layer) {
    const size_t first = at;
    for (int32_t block = 0; block < name.num_blocks; ++block) {
      ASSIGN_OR_RETURN(const size_t size, FrameBytes(slab.subspan(at)));
      RETURN_IF_ERROR(DecodeFrame(codec.get(), extent_, layer, slab.subspan(at, size),
                                  shape_.Extent(raw, layer, block)));
      at += size;
    }
    if (Hash64(slab.subspan(first, at - first)) != header.checksums[static_cast<size_t>(layer)]) {
      return DataLoss("store block {:016x}: the checksum of layer {} is wrong", name.chained_hash,
                      layer);
    }
  }
  return absl::OkStatus();
}

StoreEncoder::Counts StoreEncoder::counts() const {
  return {.raw_bytes = raw_bytes_, .stored_bytes = stored_bytes_, .unfit_blocks = unfit_blocks_};
}

}  // namespace tandem
