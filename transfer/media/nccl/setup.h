#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

enum class NcclSetupKind : uint8_t {
  kHello = 1,   // the first message, from the connecting side, with its version of NCCL
  kId = 2,      // from the accepting side: the id of the communicator
  kReady = 3,   // from both sides: the sender has the communicator
  kRefuse = 4,  // from either side, instead of any other message, with the reason
};

// The messages on the socket of an NCCL connection before the first frame. docs/media/nccl.md has
// the layout. A field that a kind does not use is 0, so that every message has exactly one
// encoding.
struct NcclSetup {
  static constexpr size_t kIdBytes = 128;

  NcclSetupKind kind = NcclSetupKind::kHello;
  absl::StatusCode code = absl::StatusCode::kOk;
  uint32_t nccl_version = 0;  // as ncclGetVersion gives it: 22809 is 2.28.9
  uint64_t epoch = 0;         // number of the communicator, counted from 1 by the accepting side
  uint64_t slot_bytes = 0;    // the largest operation that the accepting side receives
  std::array<std::byte, kIdBytes> id{};

  bool operator==(const NcclSetup&) const = default;
};

inline constexpr size_t kNcclSetupBytes = 192;
inline constexpr uint16_t kNcclSetupVersion = 1;

std::array<std::byte, kNcclSetupBytes> EncodeNcclSetup(const NcclSetup& setup);

// Parses a setup message; any bytes may be given. DATA_LOSS for bytes that are not such a message
// or were damaged, FAILED_PRECONDITION for another version, INVALID_ARGUMENT for impossible fields.
absl::StatusOr<NcclSetup> ParseNcclSetup(std::span<const std::byte, kNcclSetupBytes> bytes);

// The text form of an NCCL version, for example "2.28.9" for 22809.
std::string NcclVersionText(uint32_t version);

}  // namespace tandem
