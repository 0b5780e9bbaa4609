// Store blocks of foreign bytes: the header, and the check of a whole one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "kvstore/tier/store_block.h"

namespace tandem {
namespace {

constexpr size_t kMagicBytes = 4;
constexpr size_t kVersionAt = 4;
constexpr size_t kLayersAt = 28;

void ParseHeader(std::span<const std::byte> bytes) {
  const auto header = ParseStoreBlockHeader(bytes);
  if (!header.ok()) return;
  std::vector<std::byte> encoded(StoreHeaderBytes(static_cast<int32_t>(header->checksums.size())));
  EncodeStoreBlockHeader(*header, encoded);
  TANDEM_CHECK(std::ranges::equal(encoded, bytes.first(encoded.size())),
               "a header has a second encoding");
}

// Gives the header a right magic, version and hash: mutations break these nearly always, and what
// lies behind them shall be reached too.
std::vector<std::byte> Resealed(std::span<const std::byte> bytes) {
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  if (sealed.size() < StoreHeaderBytes(1)) return sealed;
  std::memcpy(sealed.data(), &kStoreBlockMagic, kMagicBytes);
  std::memcpy(sealed.data() + kVersionAt, &kStoreBlockVersion, sizeof(kStoreBlockVersion));
  uint32_t num_layers = 0;
  std::memcpy(&num_layers, sealed.data() + kLayersAt, sizeof(num_layers));
  const size_t fitting = (sealed.size() - StoreHeaderBytes(0)) / sizeof(uint64_t);
  num_layers = static_cast<uint32_t>(std::min<size_t>(num_layers, fitting));
  std::memcpy(sealed.data() + kLayersAt, &num_layers, sizeof(num_layers));
  const size_t hash_at = StoreHeaderBytes(static_cast<int32_t>(num_layers)) - sizeof(uint64_t);
  const uint64_t hash = Hash64(std::span(sealed).first(hash_at));
  std::memcpy(sealed.data() + hash_at, &hash, sizeof(hash));
  return sealed;
}

void Verify(std::span<const std::byte> bytes) {
  const StoreBlockShape shape(
      {.num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8});
  if (bytes.size() < shape.total_bytes()) return;
  const StoreBlockName name = {.layout_fingerprint = 0x0123456789abcdef,
                               .chained_hash = 0x1122334455667788,
                               .num_blocks = 6};
  const auto slab = bytes.first(shape.total_bytes());
  if (!VerifyStoreBlock(shape, name, slab).ok()) return;
  std::vector<std::byte> sealed(slab.begin(), slab.end());
  SealStoreBlock(shape, name, sealed);
  TANDEM_CHECK(std::ranges::equal(sealed, slab), "a store block was verified that was not sealed");
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const auto bytes = std::as_bytes(std::span(data, size));
  const std::vector<std::byte> resealed = Resealed(bytes);
  ParseHeader(bytes);
  ParseHeader(resealed);
  Verify(bytes);
  Verify(resealed);
  return 0;
}
