#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tandem::codec {

// The back-ends that compress a plane of bytes. Their values are stored in frames.
enum class Backend : uint8_t { kRle = 0, kZstd = 1 };
inline constexpr uint8_t kNumBackends = 2;

// The most bytes that zstd needs to encode any `bytes` bytes.
size_t MostZstdBytes(size_t bytes);

// Encodes `plane` by run lengths and returns the size, or nothing when `out` has too few bytes. A
// run of 4 to 131 equal bytes is a control byte 128 + (length - 4) and the byte; up to 128 other
// bytes are a control byte length - 1 and the bytes.
std::optional<size_t> EncodeRle(std::span<const uint8_t> plane, std::span<std::byte> out);
// Encodes `plane` with zstd at level 3 and returns the size. `out` has at least
// MostZstdBytes(plane.size()) bytes: with less room, zstd may produce other bytes.
size_t EncodeZstd(std::span<const uint8_t> plane, std::span<std::byte> out);

// Decodes `payload` into `plane`. False when it does not decode to exactly plane.size() bytes;
// `plane` is then of no use.
bool DecodePlane(Backend backend, std::span<const std::byte> payload, std::span<uint8_t> plane);

}  // namespace tandem::codec
