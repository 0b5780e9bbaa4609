// The setup message of an NCCL connection over foreign bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/hash.h"
#include "transfer/media/nccl/setup.h"
#include "transfer/wire/frame.h"

namespace tandem {
namespace {

using SetupBytes = std::array<std::byte, kNcclSetupBytes>;

void ParseOne(const SetupBytes& bytes) {
  const auto setup = ParseNcclSetup(bytes);
  if (!setup.ok()) return;
  TANDEM_CHECK(EncodeNcclSetup(*setup) == bytes, "a setup message has a second encoding");
  TANDEM_CHECK(setup->nccl_version > 0 && !NcclVersionText(setup->nccl_version).empty(),
               "a peer without NCCL");
  if (setup->kind != NcclSetupKind::kId) return;
  TANDEM_CHECK(setup->slot_bytes > 0 && setup->slot_bytes <= kMaxPayloadBytes && setup->epoch > 0,
               "operations that no announcement can name");
}

// A right hash, which mutations break nearly always.
SetupBytes Resealed(SetupBytes bytes) {
  const uint64_t hash = Hash64(std::span(bytes).first(kNcclSetupBytes - sizeof(uint64_t)));
  std::memcpy(bytes.data() + kNcclSetupBytes - sizeof(hash), &hash, sizeof(hash));
  return bytes;
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  SetupBytes bytes{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, bytes.size()),
              bytes.begin());
  ParseOne(bytes);
  ParseOne(Resealed(bytes));
  return 0;
}
