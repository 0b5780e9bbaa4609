#include "kvstore/codec/byte_plane_legacy.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/status.h"
#include "kvstore/codec/plane_frame.h"

namespace tandem {
namespace {

using codec::PlaneFrame;

static_assert(std::endian::native == std::endian::little, "blobs are little-endian");

// One plane for each byte of a float of up to four bytes, the lowest first.
using Lanes = std::array<PlaneFrame, 4>;

// Takes the plane frames of a blob apart, one for each of the `width` bytes of a float. Each must
// say that its plane has `words` bytes.
absl::StatusOr<Lanes> TakeLanes(size_t width, size_t words, std::span<const std::byte> bytes) {
  Lanes lanes;
  for (size_t lane = 0; lane < width; ++lane) {
    const auto frame = codec::TakePlaneFrame(codec::kNumRuntimePredictors, bytes);
    if (!frame) return DataLoss("a KV blob without a frame of lane {}", lane);
    if (frame->plane_bytes != words) {
      return DataLoss("a KV blob with {} bytes in lane {}: expected {}", frame->plane_bytes, lane,
                      words);
    }
    lanes[lane] = *frame;
  }
  if (!bytes.empty()) return DataLoss("a KV blob with {} bytes behind its frames", bytes.size());
  return lanes;
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> DecodeLegacyBlob(LegacyFloats floats,
                                                        std::span<const std::byte> blob,
                                                        size_t most_bytes) {
  const size_t width = floats == LegacyFloats::kTwoBytes ? 2 : 4;
  uint32_t words = 0;
  if (blob.size() < sizeof(words)) return DataLoss("a KV blob in {} bytes", blob.size());
  std::memcpy(&words, blob.data(), sizeof(words));
  if (words > most_bytes / width) {
    return DataLoss("a KV blob of {} floats of {} bytes: at most {} bytes are expected", words,
                    width, most_bytes);
  }
  ASSIGN_OR_RETURN(const Lanes lanes, TakeLanes(width, words, blob.subspan(sizeof(words))));
  std::vector<std::byte> floats_out(words * width);
  std::vector<uint8_t> plane(words);
  for (size_t lane = 0; lane < width; ++lane) {
    // The predictors of the earlier runtime take the bytes as one row, whatever their shape.
    if (!codec::ReadPlane(lanes[lane], {1, 1, words}, plane)) {
      return DataLoss("a KV blob whose lane {} is damaged", lane);
    }
    codec::ScatterPlane(plane, {lane, width}, floats_out);
  }
  return floats_out;
}

}  // namespace tandem
