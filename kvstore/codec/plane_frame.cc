#include "kvstore/codec/plane_frame.h"

#include <bit>
#include <cstring>

namespace tandem::codec {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

constexpr size_t kPlaneBytesAt = 2;
constexpr size_t kPayloadBytesAt = 6;

}  // namespace

std::optional<size_t> PutPlaneFrame(const PlaneFrame& frame, std::span<std::byte> out) {
  const size_t size = kPlaneHeaderBytes + frame.payload.size();
  if (out.size() < size) return std::nullopt;
  out[0] = static_cast<std::byte>(frame.predictor);
  out[1] = static_cast<std::byte>(frame.backend);
  const auto payload_bytes = static_cast<uint32_t>(frame.payload.size());
  std::memcpy(out.data() + kPlaneBytesAt, &frame.plane_bytes, sizeof(frame.plane_bytes));
  std::memcpy(out.data() + kPayloadBytesAt, &payload_bytes, sizeof(payload_bytes));
  std::memcpy(out.data() + kPlaneHeaderBytes, frame.payload.data(), frame.payload.size());
  return size;
}

std::optional<PlaneFrame> TakePlaneFrame(uint8_t num_predictors,
                                         std::span<const std::byte>& bytes) {
  if (bytes.size() < kPlaneHeaderBytes) return std::nullopt;
  const auto predictor = std::to_integer<uint8_t>(bytes[0]);
  const auto backend = std::to_integer<uint8_t>(bytes[1]);
  if (predictor >= num_predictors || backend >= kNumBackends) return std::nullopt;
  PlaneFrame frame = {
      .predictor = Predictor{predictor}, .backend = Backend{backend}, .payload = {}};
  uint32_t payload_bytes = 0;
  std::memcpy(&frame.plane_bytes, bytes.data() + kPlaneBytesAt, sizeof(frame.plane_bytes));
  std::memcpy(&payload_bytes, bytes.data() + kPayloadBytesAt, sizeof(payload_bytes));
  if (bytes.size() - kPlaneHeaderBytes < payload_bytes) return std::nullopt;
  frame.payload = bytes.subspan(kPlaneHeaderBytes, payload_bytes);
  bytes = bytes.subspan(kPlaneHeaderBytes + payload_bytes);
  return frame;
}

bool ReadPlane(const PlaneFrame& frame, const PlaneShape& shape, std::span<uint8_t> plane) {
  if (frame.plane_bytes != plane.size()) return false;
  if (!DecodePlane(frame.backend, frame.payload, plane)) return false;
  Restore(frame.predictor, shape, plane);
  return true;
}

void GatherPlane(std::span<const std::byte> elements, Lane lane, std::span<uint8_t> plane) {
  for (size_t i = 0; i < plane.size(); ++i) {
    plane[i] = std::to_integer<uint8_t>(elements[lane.index + i * lane.width]);
  }
}

void ScatterPlane(std::span<const uint8_t> plane, Lane lane, std::span<std::byte> elements) {
  for (size_t i = 0; i < plane.size(); ++i)
    elements[lane.index + i * lane.width] = std::byte{plane[i]};
}

}  // namespace tandem::codec
