#include "kvstore/codec/plane_backends.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/check.h"

namespace tandem::codec {
namespace {

constexpr int kZstdLevel = 3;
constexpr size_t kLeastRun = 4;
constexpr size_t kMostRun = 131;
constexpr size_t kMostLiterals = 128;
constexpr uint8_t kRunBit = 128;

// Making a zstd context costs more than encoding a small plane, so each thread keeps one of each
// kind. The contexts grow with the largest plane so far, up to a few MB.
ZSTD_CCtx* EncodingContext() {
  thread_local const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                                  ZSTD_freeCCtx);
  TANDEM_CHECK(context != nullptr, "no memory for zstd");
  return context.get();
}
ZSTD_DCtx* DecodingContext() {
  thread_local const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                                  ZSTD_freeDCtx);
  TANDEM_CHECK(context != nullptr, "no memory for zstd");
  return context.get();
}

size_t RunAt(std::span<const uint8_t> plane, size_t at) {
  const size_t most = std::min(plane.size(), at + kMostRun);
  size_t end = at + 1;
  while (end < most && plane[end] == plane[at]) ++end;
  return end - at;
}

// Appends runs and literals to `out`. The methods return false when `out` has too few bytes.
class RleWriter {
 public:
  explicit RleWriter(std::span<std::byte> out) : out_(out) {}

  bool PutRun(size_t length, uint8_t byte) {
    if (out_.size() - size_ < 2) return false;
    out_[size_++] = static_cast<std::byte>(kRunBit + (length - kLeastRun));
    out_[size_++] = std::byte{byte};
    return true;
  }
  bool PutLiterals(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const size_t count = std::min(bytes.size(), kMostLiterals);
      if (out_.size() - size_ < 1 + count) return false;
      out_[size_++] = static_cast<std::byte>(count - 1);
      std::memcpy(out_.data() + size_, bytes.data(), count);
      size_ += count;
      bytes = bytes.subspan(count);
    }
    return true;
  }
  size_t size() const { return size_; }

 private:
  const std::span<std::byte> out_;
  size_t size_ = 0;
};

bool DecodeRle(std::span<const std::byte> payload, std::span<uint8_t> plane) {
  while (!payload.empty()) {
    const auto control = std::to_integer<uint8_t>(payload[0]);
    const bool is_run = control >= kRunBit;
    const size_t length = is_run ? control - kRunBit + kLeastRun : control + size_t{1};
    const size_t taken = is_run ? 1 : length;
    payload = payload.subspan(1);
    if (payload.size() < taken || plane.size() < length) return false;
    if (is_run) {
      std::memset(plane.data(), std::to_integer<int>(payload[0]), length);
    } else {
      std::memcpy(plane.data(), payload.data(), length);
    }
    payload = payload.subspan(taken);
    plane = plane.subspan(length);
  }
  return plane.empty();
}

// Accepts exactly one zstd frame: zstd itself would also take several frames that have the bytes of
// the plane together.
bool DecodeZstd(std::span<const std::byte> payload, std::span<uint8_t> plane) {
  if (ZSTD_findFrameCompressedSize(payload.data(), payload.size()) != payload.size()) return false;
  return ZSTD_decompressDCtx(DecodingContext(), plane.data(), plane.size(), payload.data(),
                             payload.size()) == plane.size();
}

}  // namespace

size_t MostZstdBytes(size_t bytes) { return ZSTD_compressBound(bytes); }

std::optional<size_t> EncodeRle(std::span<const uint8_t> plane, std::span<std::byte> out) {
  RleWriter writer(out);
  size_t literals_at = 0;
  for (size_t at = 0; at < plane.size();) {
    const size_t run = RunAt(plane, at);
    if (run >= kLeastRun) {
      if (!writer.PutLiterals(plane.subspan(literals_at, at - literals_at)) ||
          !writer.PutRun(run, plane[at])) {
        return std::nullopt;
      }
      literals_at = at + run;
    }
    at += run;
  }
  if (!writer.PutLiterals(plane.subspan(literals_at))) return std::nullopt;
  return writer.size();
}

size_t EncodeZstd(std::span<const uint8_t> plane, std::span<std::byte> out) {
  const size_t size = ZSTD_compressCCtx(EncodingContext(), out.data(), out.size(), plane.data(),
                                        plane.size(), kZstdLevel);
  TANDEM_CHECK(ZSTD_isError(size) == 0, ZSTD_getErrorName(size));
  return size;
}

bool DecodePlane(Backend backend, std::span<const std::byte> payload, std::span<uint8_t> plane) {
  return backend == Backend::kRle ? DecodeRle(payload, plane) : DecodeZstd(payload, plane);
}

}  // namespace tandem::codec
