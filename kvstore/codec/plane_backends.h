#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tandem::codec {

// What makes a plane smaller. The values are bytes of frames.
enum class Backend : uint8_t { kRle = 0, kZstd = 1 };
inline constexpr uint8_t kNumBackends = 2;

// Room in which zstd encodes so many bytes, whatever they are.
size_t MostZstdBytes(size_t bytes);

// Encodes `plane` and returns the size, or nothing when `out` has too few bytes. A run of 4 to 131 equal
// bytes is a control byte 128 + (length - 4) and the byte; up to 128 others are a control byte
// length - 1 and the bytes.
std::optional<size_t> EncodeRle(std::span<const uint8_t> plane, std::span<std::byte> out);
// At level 3. `out` has at least MostZstdBytes: with less, zstd may choose other bytes that fit.
size_t EncodeZstd(std::span<const uint8_t> plane, std::span<std::byte> out);

// False when `payload` does not hold exactly plane.size() bytes; `plane` is then of no use.
bool DecodePlane(Backend backend, std::span<const std::byte> payload, std::span<uint8_t> plane);

}  // namespace tandem::codec
