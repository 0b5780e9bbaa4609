#include "transfer/media/shm/setup.h"

#include <algorithm>

#include "base/status.h"
#include "transfer/media/setup_message.h"

namespace tandem {
namespace {

constexpr size_t kCodeAt = 6;
constexpr size_t kAreaAt = 8;
constexpr size_t kForwardAt = 16;
constexpr size_t kBackAt = 24;

constexpr uint32_t kMagic = 0x4d534454;  // "TDSM"
constexpr std::string_view kName = "shared-memory setup";

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
  StoreField(bytes, kCodeAt, 1, static_cast<uint64_t>(setup.code));
  StoreField(bytes, kAreaAt, 8, setup.layout.area_bytes);
  StoreField(bytes, kForwardAt, 8, setup.layout.forward_bytes);
  StoreField(bytes, kBackAt, 8, setup.layout.back_bytes);
  SealSetup(bytes, kMagic, kShmVersion);
  return bytes;
}

absl::StatusOr<ShmSetup> ParseShmSetup(std::span<const std::byte, kShmSetupBytes> bytes) {
  RETURN_IF_ERROR(CheckSetup(bytes, kMagic, kShmVersion, kName));
  const uint64_t code = LoadField(bytes, kCodeAt, 1);
  const ShmSetup setup = {.code = static_cast<absl::StatusCode>(code),
                          .layout = {.area_bytes = LoadField(bytes, kAreaAt, 8),
                                     .forward_bytes = LoadField(bytes, kForwardAt, 8),
                                     .back_bytes = LoadField(bytes, kBackAt, 8)}};
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
