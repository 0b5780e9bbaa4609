#include "transfer/shm/setup.h"

#include <algorithm>

#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 4;
constexpr size_t kCodeAt = 6;
constexpr size_t kAreaAt = 8;
constexpr size_t kForwardAt = 16;
constexpr size_t kBackAt = 24;
constexpr size_t kHashAt = 56;

constexpr uint32_t kMagic = 0x4d534454;  // "TDSM"
constexpr uint8_t kMaxStatusCode = 16;

using SetupBytes = std::span<const std::byte, kShmSetupBytes>;

void Store(std::span<std::byte, kShmSetupBytes> bytes, size_t at, size_t size, uint64_t value) {
  for (size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t Load(SetupBytes bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  }
  return value;
}

absl::Status CheckPart(std::string_view name, uint64_t bytes) {
  if (bytes > 0 && bytes <= kMaxSlotPartBytes && bytes % kPageBytes == 0) return absl::OkStatus();
  return InvalidArgument("{} of {} bytes: must be a multiple of {} up to {}", name, bytes,
                         kPageBytes, kMaxSlotPartBytes);
}

}  // namespace

absl::Status CheckLayout(const SlotLayout& layout) {
  RETURN_IF_ERROR(CheckPart("area", layout.area_bytes));
  RETURN_IF_ERROR(CheckPart("forward ring", layout.forward_bytes));
  return CheckPart("back ring", layout.back_bytes);
}

std::array<std::byte, kShmSetupBytes> EncodeShmSetup(const ShmSetup& setup) {
  std::array<std::byte, kShmSetupBytes> bytes{};
  Store(bytes, kMagicAt, 4, kMagic);
  Store(bytes, kVersionAt, 2, kShmVersion);
  Store(bytes, kCodeAt, 1, static_cast<uint64_t>(setup.code));
  Store(bytes, kAreaAt, 8, setup.layout.area_bytes);
  Store(bytes, kForwardAt, 8, setup.layout.forward_bytes);
  Store(bytes, kBackAt, 8, setup.layout.back_bytes);
  Store(bytes, kHashAt, 8, Hash64(std::span(bytes).first<kHashAt>()));
  return bytes;
}

absl::StatusOr<ShmSetup> ParseShmSetup(SetupBytes bytes) {
  if (Load(bytes, kMagicAt, 4) != kMagic) {
    return DataLoss("no shared-memory setup: it begins with {:#x}", Load(bytes, kMagicAt, 4));
  }
  if (Load(bytes, kHashAt, 8) != Hash64(bytes.first<kHashAt>())) {
    return DataLoss("shared-memory setup: the hash is wrong");
  }
  if (const uint64_t version = Load(bytes, kVersionAt, 2); version != kShmVersion) {
    return FailedPrecondition("shared-memory setup of version {}: this build speaks {}", version,
                              kShmVersion);
  }
  const uint64_t code = Load(bytes, kCodeAt, 1);
  const ShmSetup setup = {.code = static_cast<absl::StatusCode>(code),
                          .layout = {.area_bytes = Load(bytes, kAreaAt, 8),
                                     .forward_bytes = Load(bytes, kForwardAt, 8),
                                     .back_bytes = Load(bytes, kBackAt, 8)}};
  if (code > kMaxStatusCode) return InvalidArgument("shared-memory setup: status code {}", code);
  if (!std::ranges::equal(EncodeShmSetup(setup), bytes)) {
    return InvalidArgument("shared-memory setup: bytes that this version does not use are set");
  }
  if (code == 0) {
    RETURN_IF_ERROR(CheckLayout(setup.layout));
  } else if (setup.layout != SlotLayout{}) {
    return InvalidArgument("shared-memory setup: a refusal with sizes");
  }
  return setup;
}

}  // namespace tandem
