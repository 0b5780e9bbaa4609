#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

enum class NcclSetupKind : uint8_t {
  kHello = 1,   // from the connector, first: which NCCL it has
  kId = 2,      // from the acceptor: what both make a communicator of
  kReady = 3,   // from both: the communicator stands
  kRefuse = 4,  // from either, instead of any of these: why not
};

// What goes over the socket of an NCCL connection before the first frame. All are of one size:
//   offset 0  magic "TDNC" u32 · 4 version u16 · 6 kind u8 · 7 code u8 (kRefuse: the gRPC number)
//          8  nccl_version u32 · 12 zeros · 16 epoch u64 (kId, kReady) · 24 slot_bytes u64 (kId)
//          32 zeros · 56 unique id, 128 bytes (kId) · 184 XXH3-64 of the rest
// Little-endian; what a kind does not use is 0, so that every message has one encoding.
struct NcclSetup {
  static constexpr size_t kIdBytes = 128;

  NcclSetupKind kind = NcclSetupKind::kHello;
  absl::StatusCode code = absl::StatusCode::kOk;
  uint32_t nccl_version = 0;  // as ncclGetVersion gives it: 22809 is 2.28.9
  uint64_t epoch = 0;         // of the communicator, as the acceptor counts them; from 1 on
  uint64_t slot_bytes = 0;    // the largest operation that the acceptor receives
  std::array<std::byte, kIdBytes> id{};

  bool operator==(const NcclSetup&) const = default;
};

inline constexpr size_t kNcclSetupBytes = 192;
inline constexpr uint16_t kNcclSetupVersion = 1;

std::array<std::byte, kNcclSetupBytes> EncodeNcclSetup(const NcclSetup& setup);

// DATA_LOSS for what is no such message or was damaged, FAILED_PRECONDITION for another version,
// INVALID_ARGUMENT for fields that cannot be.
absl::StatusOr<NcclSetup> ParseNcclSetup(std::span<const std::byte, kNcclSetupBytes> bytes);

// "2.28.9" of 22809.
std::string NcclVersionText(uint32_t version);

}  // namespace tandem
