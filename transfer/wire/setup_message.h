#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "base/hash.h"
#include "base/status.h"

// Little-endian fields, which frames have as well, and what the setup messages of shm, ipc and nccl
// have in common: a fixed size, a magic number at offset 0, a version at offset 4, and XXH3-64 of
// everything before in the last 8 bytes.
namespace tandem {

inline constexpr size_t kSetupHashBytes = 8;
inline constexpr uint8_t kMaxStatusCode = 16;  // the highest number that gRPC uses

inline void StoreField(std::span<std::byte> bytes, size_t at, size_t size, uint64_t value) {
  for (size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

inline uint64_t LoadField(std::span<const std::byte> bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  }
  return value;
}

// Completes a setup message whose other fields are set: stores its magic number, version and hash.
inline void SealSetup(std::span<std::byte> bytes, uint32_t magic, uint16_t version) {
  StoreField(bytes, 0, 4, magic);
  StoreField(bytes, 4, 2, version);
  const size_t hash_at = bytes.size() - kSetupHashBytes;
  StoreField(bytes, hash_at, kSetupHashBytes, Hash64(bytes.first(hash_at)));
}

// Checks a setup message. DATA_LOSS unless `bytes` is an undamaged message of that magic number,
// FAILED_PRECONDITION for another version. `name` is what the error calls the message.
inline absl::Status CheckSetup(std::span<const std::byte> bytes, uint32_t magic, uint16_t version,
                               std::string_view name) {
  if (LoadField(bytes, 0, 4) != magic) {
    return DataLoss("no {}: it begins with {:#x}", name, LoadField(bytes, 0, 4));
  }
  const size_t hash_at = bytes.size() - kSetupHashBytes;
  if (LoadField(bytes, hash_at, kSetupHashBytes) != Hash64(bytes.first(hash_at))) {
    return DataLoss("{}: the hash is wrong", name);
  }
  if (const uint64_t found = LoadField(bytes, 4, 2); found != version) {
    return FailedPrecondition("{} of version {}: this build speaks {}", name, found, version);
  }
  return absl::OkStatus();
}

}  // namespace tandem
