#include "transfer/nccl/setup.h"

#include <algorithm>

#include "base/hash.h"
#include "base/status.h"
#include "transfer/frame.h"

namespace tandem {
namespace {

constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 4;
constexpr size_t kKindAt = 6;
constexpr size_t kCodeAt = 7;
constexpr size_t kNcclVersionAt = 8;
constexpr size_t kEpochAt = 16;
constexpr size_t kSlotBytesAt = 24;
constexpr size_t kIdAt = 56;
constexpr size_t kHashAt = kIdAt + NcclSetup::kIdBytes;
static_assert(kHashAt + sizeof(uint64_t) == kNcclSetupBytes);

constexpr uint32_t kMagic = 0x434e4454;  // "TDNC"
constexpr uint8_t kMaxStatusCode = 16;

using SetupBytes = std::span<const std::byte, kNcclSetupBytes>;

void Store(std::span<std::byte, kNcclSetupBytes> bytes, size_t at, size_t size, uint64_t value) {
  for (size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t Load(SetupBytes bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  }
  return value;
}

bool HasId(const NcclSetup& setup) { return setup.id != decltype(setup.id){}; }

absl::Status CheckUsed(const NcclSetup& setup) {
  if (setup.nccl_version == 0) return InvalidArgument("NCCL setup: no version of NCCL");
  const bool is_id = setup.kind == NcclSetupKind::kId;
  if (is_id && (setup.slot_bytes == 0 || setup.slot_bytes > kMaxPayloadBytes)) {
    return InvalidArgument("NCCL setup: operations of {} bytes: must be between 1 and {}",
                           setup.slot_bytes, kMaxPayloadBytes);
  }
  if (is_id && !HasId(setup)) return InvalidArgument("NCCL setup: the unique id is missing");
  const bool has_epoch = is_id || setup.kind == NcclSetupKind::kReady;
  if (has_epoch && setup.epoch == 0) return InvalidArgument("NCCL setup: the epoch is missing");
  if (setup.kind == NcclSetupKind::kRefuse && setup.code == absl::StatusCode::kOk) {
    return InvalidArgument("NCCL setup: a refusal that does not say why");
  }
  return absl::OkStatus();
}

absl::Status CheckUnused(const NcclSetup& setup) {
  const bool is_id = setup.kind == NcclSetupKind::kId;
  const bool has_epoch = is_id || setup.kind == NcclSetupKind::kReady;
  const bool is_refusal = setup.kind == NcclSetupKind::kRefuse;
  if ((is_id || (setup.slot_bytes == 0 && !HasId(setup))) && (has_epoch || setup.epoch == 0) &&
      (is_refusal || setup.code == absl::StatusCode::kOk)) {
    return absl::OkStatus();
  }
  return InvalidArgument("NCCL setup of kind {}: a field that the kind does not use is set",
                         static_cast<int>(setup.kind));
}

}  // namespace

std::array<std::byte, kNcclSetupBytes> EncodeNcclSetup(const NcclSetup& setup) {
  std::array<std::byte, kNcclSetupBytes> bytes{};
  Store(bytes, kMagicAt, 4, kMagic);
  Store(bytes, kVersionAt, 2, kNcclSetupVersion);
  Store(bytes, kKindAt, 1, static_cast<uint64_t>(setup.kind));
  Store(bytes, kCodeAt, 1, static_cast<uint64_t>(setup.code));
  Store(bytes, kNcclVersionAt, 4, setup.nccl_version);
  Store(bytes, kEpochAt, 8, setup.epoch);
  Store(bytes, kSlotBytesAt, 8, setup.slot_bytes);
  std::ranges::copy(setup.id, bytes.begin() + kIdAt);
  Store(bytes, kHashAt, 8, Hash64(std::span(bytes).first<kHashAt>()));
  return bytes;
}

absl::StatusOr<NcclSetup> ParseNcclSetup(SetupBytes bytes) {
  if (Load(bytes, kMagicAt, 4) != kMagic) {
    return DataLoss("no NCCL setup: it begins with {:#x}", Load(bytes, kMagicAt, 4));
  }
  if (Load(bytes, kHashAt, 8) != Hash64(bytes.first<kHashAt>())) {
    return DataLoss("NCCL setup: the hash is wrong");
  }
  if (const uint64_t version = Load(bytes, kVersionAt, 2); version != kNcclSetupVersion) {
    return FailedPrecondition("NCCL setup of version {}: this build speaks {}", version,
                              kNcclSetupVersion);
  }
  const uint64_t kind = Load(bytes, kKindAt, 1);
  const uint64_t code = Load(bytes, kCodeAt, 1);
  if (kind < 1 || kind > 4) return InvalidArgument("NCCL setup of kind {}: unknown", kind);
  if (code > kMaxStatusCode) return InvalidArgument("NCCL setup: status code {}", code);
  NcclSetup setup = {.kind = static_cast<NcclSetupKind>(kind),
                     .code = static_cast<absl::StatusCode>(code),
                     .nccl_version = static_cast<uint32_t>(Load(bytes, kNcclVersionAt, 4)),
                     .epoch = Load(bytes, kEpochAt, 8),
                     .slot_bytes = Load(bytes, kSlotBytesAt, 8)};
  std::ranges::copy(bytes.subspan<kIdAt, NcclSetup::kIdBytes>(), setup.id.begin());
  if (!std::ranges::equal(EncodeNcclSetup(setup), bytes)) {
    return InvalidArgument("NCCL setup: bytes that this version does not use are set");
  }
  RETURN_IF_ERROR(CheckUsed(setup));
  RETURN_IF_ERROR(CheckUnused(setup));
  return setup;
}

std::string NcclVersionText(uint32_t version) {
  // Up to 2.8 they were coded in thousands.
  const uint32_t major = version >= 10000 ? version / 10000 : version / 1000;
  const uint32_t minor = version >= 10000 ? version % 10000 / 100 : version % 1000 / 100;
  return fmt::format("{}.{}.{}", major, minor, version % 100);
}

}  // namespace tandem
