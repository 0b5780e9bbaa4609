#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kvstore/codec/plane_backends.h"
#include "kvstore/codec/plane_predictors.h"

namespace tandem::codec {

// One encoded plane, in the frame of the earlier systems: [predictor u8][back-end u8][bytes of the
// plane u32][bytes of the payload u32][payload], little-endian.
struct PlaneFrame {
  Predictor predictor = Predictor::kRaw;
  Backend backend = Backend::kRle;
  uint32_t plane_bytes = 0;
  std::span<const std::byte> payload;
};
inline constexpr size_t kPlaneHeaderBytes = 10;

// Writes the frame to the beginning of `out` and returns its size, or nothing when it does not fit.
std::optional<size_t> PutPlaneFrame(const PlaneFrame& frame, std::span<std::byte> out);

// Removes the frame at the beginning of `bytes` from them and returns it. Nothing when there is
// none whose predictor is one of the first `num_predictors`. The payload is checked by ReadPlane,
// not here.
std::optional<PlaneFrame> TakePlaneFrame(uint8_t num_predictors, std::span<const std::byte>& bytes);

// Decodes a frame into `plane`, which has shape.Bytes() bytes. False when the frame does not decode
// to that number of bytes.
bool ReadPlane(const PlaneFrame& frame, const PlaneShape& shape, std::span<uint8_t> plane);

// Names a plane: byte `index` of every element, where elements have `width` bytes.
struct Lane {
  size_t index;
  size_t width;
};
void GatherPlane(std::span<const std::byte> elements, Lane lane, std::span<uint8_t> plane);
void ScatterPlane(std::span<const uint8_t> plane, Lane lane, std::span<std::byte> elements);

}  // namespace tandem::codec
