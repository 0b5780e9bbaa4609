#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace tandem {

// How a slot of shared memory is divided: the area for payloads, the ring toward the acceptor, the
// ring back, one page of control. All sizes are whole pages.
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

// The first and only message on the socket of a shared-memory connection, from the acceptor:
// either the slot, whose descriptor comes with it and before the two doorbells, the acceptor's and
// the connector's, or why there is none.
//   offset 0  magic "TDSM" u32 · 4 version u16 · 6 code u8 (0, or the gRPC number of the refusal)
//          7  0 u8 · 8 area_bytes u64 · 16 forward_bytes u64 · 24 back_bytes u64 · 32 zeros
//         56  XXH3-64 of the rest
// Little-endian; a refusal has sizes of 0, so that every message has one encoding.
struct ShmSetup {
  absl::StatusCode code = absl::StatusCode::kOk;
  SlotLayout layout;
  bool operator==(const ShmSetup&) const = default;
};

inline constexpr size_t kShmSetupBytes = 64;
inline constexpr uint16_t kShmVersion = 3;
// That come with a slot: its memory, both doorbells.
inline constexpr size_t kSlotDescriptors = 3;
inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kMaxSlotPartBytes = uint64_t{1} << 30;

std::array<std::byte, kShmSetupBytes> EncodeShmSetup(const ShmSetup& setup);

// DATA_LOSS for what is no such message or was damaged, FAILED_PRECONDITION for another version,
// INVALID_ARGUMENT for fields that cannot be.
absl::StatusOr<ShmSetup> ParseShmSetup(std::span<const std::byte, kShmSetupBytes> bytes);

// INVALID_ARGUMENT naming the size.
absl::Status CheckLayout(const SlotLayout& layout);

}  // namespace tandem
