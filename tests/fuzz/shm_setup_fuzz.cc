// The setup message of a shared-memory connection, and addresses, over foreign bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"
#include "transfer/media/host_address.h"
#include "transfer/media/shm/setup.h"
#include "transfer/media/shm/slot.h"

namespace tandem {
namespace {

using SetupBytes = std::array<std::byte, kShmSetupBytes>;

void ParseOne(const SetupBytes& bytes) {
  const auto setup = ParseShmSetup(bytes);
  if (!setup.ok()) return;
  TANDEM_CHECK(EncodeShmSetup(*setup) == bytes, "a setup message has a second encoding");
  if (setup->code != absl::StatusCode::kOk) return;
  const SlotLayout& layout = setup->layout;
  TANDEM_CHECK(layout.area_bytes > 0 && layout.forward_bytes > 0 && layout.back_bytes > 0,
               "a part without bytes");
  TANDEM_CHECK(layout.slot_bytes() <= 3 * kMaxSlotPartBytes + SlotLayout::kControlBytes &&
                   layout.control_offset() + SlotLayout::kControlBytes == layout.slot_bytes(),
               "parts outside of the slot");
}

// A right hash, which mutations break nearly always.
SetupBytes Resealed(SetupBytes bytes) {
  const uint64_t hash = Hash64(std::span(bytes).first(kShmSetupBytes - sizeof(uint64_t)));
  std::memcpy(bytes.data() + kShmSetupBytes - sizeof(hash), &hash, sizeof(hash));
  return bytes;
}

void ParseAddress(std::string_view text) {
  const auto address = ParseHostAddress(text);
  if (!address.ok()) return;
  const auto again = ParseHostAddress(address->Text());
  TANDEM_CHECK(again.ok() && again->host == address->host && again->name == address->name,
               "an address that is not what its text says");
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  ParseAddress({reinterpret_cast<const char*>(data), size});
  SetupBytes bytes{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, bytes.size()),
              bytes.begin());
  ParseOne(bytes);
  ParseOne(Resealed(bytes));
  return 0;
}
