#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace tandem {

// The parts of a slot of shared memory: the area for payloads, the ring toward the accepting side,
// the ring back, and one page of control. All sizes are whole pages.
struct SlotLayout {
  uint64_t area_bytes = 0;
  uint64_t forward_bytes = 0;
  uint64_t back_bytes = 0;

  uint64_t slot_bytes() const { return control_offset() + kControlBytes; }
  uint64_t forward_offset() const { return area_bytes; }
  uint64_t back_offset() const { return forward_offset() + forward_bytes; }
  uint64_t control_offset() const { return back_offset() + back_bytes; }

  static constexpr uint64_t kControlBytes = 4096;
  bool operator==(const SlotLayout&) const = default;
};

// The only message on the socket of a shared-memory connection, from the accepting side. It carries
// either the slot, with the descriptors of its memory, of the accepting side's doorbell and of the
// connecting side's, or the reason for a refusal.
//   offset 0  magic "TDSM" u32 · 4 version u16 · 6 code u8 (0, or the gRPC number of the refusal)
//          7  0 u8 · 8 area_bytes u64 · 16 forward_bytes u64 · 24 back_bytes u64 · 32 zeros
//         56  XXH3-64 of the rest
// All numbers are little-endian. A refusal has sizes of 0, so every message has exactly one encoding.
struct ShmSetup {
  absl::StatusCode code = absl::StatusCode::kOk;
  SlotLayout layout;
  bool operator==(const ShmSetup&) const = default;
};

inline constexpr size_t kShmSetupBytes = 64;
inline constexpr uint16_t kShmVersion = 3;
// A slot comes with these descriptors: its memory and both doorbells.
inline constexpr size_t kSlotDescriptors = 3;
inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kMaxSlotPartBytes = uint64_t{1} << 30;

std::array<std::byte, kShmSetupBytes> EncodeShmSetup(const ShmSetup& setup);

// DATA_LOSS for bytes that are not such a message or were damaged, FAILED_PRECONDITION for another
// version, INVALID_ARGUMENT for impossible fields.
absl::StatusOr<ShmSetup> ParseShmSetup(std::span<const std::byte, kShmSetupBytes> bytes);

// INVALID_ARGUMENT names the size.
absl::Status CheckLayout(const SlotLayout& layout);

}  // namespace tandem
