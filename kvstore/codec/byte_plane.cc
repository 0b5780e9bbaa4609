#include "kvstore/codec/byte_plane.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "kvstore/codec/plane_frame.h"

namespace tandem {
namespace codec {
namespace {

PlaneShape PlaneOf(const ExtentShape& shape) {
  return {static_cast<size_t>(shape.num_kv_heads), static_cast<size_t>(shape.tokens),
          static_cast<size_t>(shape.head_dim)};
}

// The two halves of an extent: K and V.
template <typename Byte>
std::array<std::span<Byte>, 2> HalvesOf(std::span<Byte> raw) {
  return {raw.first(raw.size() / 2), raw.subspan(raw.size() / 2)};
}

// Encodes one plane after another, and keeps the smallest result of all candidates, which are a
// predictor and a back-end each. It allocates about four planes, once.
class PlaneEncoder {
 public:
  PlaneEncoder(const PlaneShape& shape, uint8_t num_predictors)
      : shape_(shape),
        num_predictors_(num_predictors),
        plane_(shape.Bytes()),
        predicted_(shape.Bytes()),
        best_(MostZstdBytes(shape.Bytes())),
        trial_(best_.size()) {}

  // The plane that Encode reads; the caller fills it before.
  std::span<uint8_t> plane() { return plane_; }

  // Returns the smallest candidate. Among candidates of one size the first is kept: predictors in
  // their order, RLE before zstd. The frame is valid until the next call.
  PlaneFrame Encode() {
    PlaneFrame frame = {.plane_bytes = static_cast<uint32_t>(plane_.size()), .payload = {}};
    best_bytes_ = best_.size() + 1;
    for (uint8_t i = 0; i < num_predictors_; ++i) {
      const Predictor predictor{i};
      std::ranges::copy(plane_, predicted_.begin());
      Predict(predictor, shape_, predicted_);
      if (TryRle()) SetCandidate(predictor, Backend::kRle, frame);
      if (TryZstd()) SetCandidate(predictor, Backend::kZstd, frame);
    }
    frame.payload = std::span(best_).first(best_bytes_);
    return frame;
  }

 private:
  // Each of these encodes the predicted plane with a back-end, and returns whether the result is
  // smaller than the best so far and has replaced it in best_.
  bool TryRle() { return Take(EncodeRle(predicted_, std::span(trial_).first(best_bytes_ - 1))); }
  bool TryZstd() { return Take(EncodeZstd(predicted_, trial_)); }
  bool Take(std::optional<size_t> bytes) {
    if (!bytes || *bytes >= best_bytes_) return false;
    best_bytes_ = *bytes;
    std::swap(best_, trial_);
    return true;
  }
  static void SetCandidate(Predictor predictor, Backend backend, PlaneFrame& frame) {
    frame.predictor = predictor;
    frame.backend = backend;
  }

  const PlaneShape shape_;
  const uint8_t num_predictors_;
  std::vector<uint8_t> plane_;
  std::vector<uint8_t> predicted_;
  std::vector<std::byte> best_;
  std::vector<std::byte> trial_;
  size_t best_bytes_ = 0;  // larger than best_ while there is no candidate
};

class BytePlane final : public KvCodec {
 public:
  explicit BytePlane(uint8_t num_predictors) : num_predictors_(num_predictors) {}

  CodecId id() const override { return CodecId::kBytePlane; }
  bool lossless() const override { return true; }
  uint64_t tables_id() const override { return 0; }
  bool Fits(const ExtentShape& shape, int32_t) const override {
    // A frame says the size of a plane in 32 bits.
    return shape.Bytes() <= std::numeric_limits<uint32_t>::max();
  }

  bool Decode(const ExtentShape& shape, int32_t, std::span<const std::byte> payload,
              std::span<std::byte> raw) const override {
    const PlaneShape plane_shape = PlaneOf(shape);
    const auto width = static_cast<size_t>(SizeOf(shape.dtype));
    std::vector<uint8_t> plane(plane_shape.Bytes());
    for (const auto& half : HalvesOf(raw)) {
      for (size_t lane = 0; lane < width; ++lane) {
        const auto frame = TakePlaneFrame(kNumPredictors, payload);
        if (!frame || !ReadPlane(*frame, plane_shape, plane)) return false;
        ScatterPlane(plane, {lane, width}, half);
      }
    }
    return payload.empty();
  }

 private:
  std::optional<size_t> DoEncode(const ExtentShape& shape, const ExtentPlace&,
                                 std::span<const std::byte> raw, std::span<std::byte> out,
                                 KeyBytes& keys) const override {
    PlaneEncoder encoder(PlaneOf(shape), num_predictors_);
    const auto width = static_cast<size_t>(SizeOf(shape.dtype));
    size_t size = 0;
    for (const auto& half : HalvesOf(raw)) {
      keys.bytes = size;  // the last value is the size of what lies before V
      for (size_t lane = 0; lane < width; ++lane) {
        GatherPlane(half, {lane, width}, encoder.plane());
        const auto bytes = PutPlaneFrame(encoder.Encode(), out.subspan(size));
        if (!bytes) return std::nullopt;
        size += *bytes;
      }
    }
    return size;
  }

  const uint8_t num_predictors_;
};

}  // namespace
}  // namespace codec

std::unique_ptr<KvCodec> NewBytePlaneCodec(PlanePredictors predictors) {
  const bool all = predictors == PlanePredictors::kAll;
  return std::make_unique<codec::BytePlane>(all ? codec::kNumPredictors
                                                : codec::kNumRuntimePredictors);
}

}  // namespace tandem
