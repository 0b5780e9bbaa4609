#include "transfer/media/nccl/setup.h"

#include <algorithm>

#include "base/status.h"
#include "transfer/wire/frame.h"
#include "transfer/wire/setup_message.h"

namespace tandem {
namespace {

constexpr size_t kSetupKindAt = 6;
constexpr size_t kSetupCodeAt = 7;
constexpr size_t kNcclVersionAt = 8;
constexpr size_t kEpochAt = 16;
constexpr size_t kSlotBytesAt = 24;
constexpr size_t kIdAt = 56;
static_assert(kIdAt + NcclSetup::kIdBytes + kSetupHashBytes == kNcclSetupBytes);

constexpr uint32_t kNcclSetupMagic = 0x434e4454;  // "TDNC"

bool HasId(const NcclSetup& setup) { return setup.id != decltype(setup.id){}; }

absl::Status CheckFields(const NcclSetup& setup) {
  if (setup.nccl_version == 0) return InvalidArgument("NCCL setup: no version of NCCL");
  const bool is_id = setup.kind == NcclSetupKind::kId;
  const bool has_epoch = is_id || setup.kind == NcclSetupKind::kReady;
  const bool is_refusal = setup.kind == NcclSetupKind::kRefuse;
  if (is_id && (setup.slot_bytes == 0 || setup.slot_bytes > kMaxPayloadBytes)) {
    return InvalidArgument("NCCL setup: operations of {} bytes: must be between 1 and {}",
                           setup.slot_bytes, kMaxPayloadBytes);
  }
  if (is_id && !HasId(setup)) return InvalidArgument("NCCL setup: the unique id is missing");
  if (has_epoch && setup.epoch == 0) return InvalidArgument("NCCL setup: the epoch is missing");
  if (is_refusal && setup.code == absl::StatusCode::kOk) {
    return InvalidArgument("NCCL setup: a refusal that does not say why");
  }
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
  StoreField(bytes, kSetupKindAt, 1, static_cast<uint64_t>(setup.kind));
  StoreField(bytes, kSetupCodeAt, 1, static_cast<uint64_t>(setup.code));
  StoreField(bytes, kNcclVersionAt, 4, setup.nccl_version);
  StoreField(bytes, kEpochAt, 8, setup.epoch);
  StoreField(bytes, kSlotBytesAt, 8, setup.slot_bytes);
  std::ranges::copy(setup.id, bytes.begin() + kIdAt);
  SealSetup(bytes, kNcclSetupMagic, kNcclSetupVersion);
  return bytes;
}

absl::StatusOr<NcclSetup> ParseNcclSetup(std::span<const std::byte, kNcclSetupBytes> bytes) {
  RETURN_IF_ERROR(CheckSetup(bytes, kNcclSetupMagic, kNcclSetupVersion, "NCCL setup"));
  const uint64_t kind = LoadField(bytes, kSetupKindAt, 1);
  const uint64_t code = LoadField(bytes, kSetupCodeAt, 1);
  if (kind < 1 || kind > 4) return InvalidArgument("NCCL setup of kind {}: unknown", kind);
  if (code > kMaxStatusCode) return InvalidArgument("NCCL setup: status code {}", code);
  NcclSetup setup = {.kind = static_cast<NcclSetupKind>(kind),
                     .code = static_cast<absl::StatusCode>(code),
                     .nccl_version = static_cast<uint32_t>(LoadField(bytes, kNcclVersionAt, 4)),
                     .epoch = LoadField(bytes, kEpochAt, 8),
                     .slot_bytes = LoadField(bytes, kSlotBytesAt, 8)};
  std::ranges::copy(bytes.subspan<kIdAt, NcclSetup::kIdBytes>(), setup.id.begin());
  if (!std::ranges::equal(EncodeNcclSetup(setup), bytes)) {
    return InvalidArgument("NCCL setup: bytes that this version does not use are set");
  }
  RETURN_IF_ERROR(CheckFields(setup));
  return setup;
}

std::string NcclVersionText(uint32_t version) {
  // NCCL numbers its versions up to 2.8 in thousands, later ones in ten thousands.
  const uint32_t major = version >= 10000 ? version / 10000 : version / 1000;
  const uint32_t minor = version >= 10000 ? version % 10000 / 100 : version % 1000 / 100;
  return fmt::format("{}.{}.{}", major, minor, version % 100);
}

}  // namespace tandem
