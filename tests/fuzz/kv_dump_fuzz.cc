// Dumps of KV of foreign bytes: as they are, and with a right magic, version, size and hash, so
// that the records are reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "kvstore/kv_dump.h"

namespace tandem {
namespace {

constexpr size_t kDumpIdBytesAt = 6;
constexpr size_t kDumpFileBytesAt = 8;
constexpr size_t kDumpHashAt = 56;

void Parse(std::span<const std::byte> bytes) {
  const auto size = KvDumpFileBytes(bytes);
  const auto dump = ParseKvDump(bytes);
  if (!dump.ok()) return;
  TANDEM_CHECK(size.ok() && *size == bytes.size(), "a dump of another size than its header says");
  TANDEM_CHECK(std::ssize(dump->layers) == dump->header.layout.num_layers, "other layers");
  uint64_t wire_bytes = 0;
  for (const KvLayerParts& layer : dump->layers) {
    wire_bytes += layer.k.wire_bytes + layer.v.wire_bytes;
    TANDEM_CHECK(layer.raw_blocks <= layer.blocks, "more raw blocks than blocks");
  }
  TANDEM_CHECK(wire_bytes <= bytes.size(), "more was sent than the file has");
}

std::vector<std::byte> Sealed(std::span<const std::byte> bytes) {
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  if (file.size() < kKvDumpHeaderBytes) return file;
  std::memcpy(file.data(), &kKvDumpMagic, sizeof(kKvDumpMagic));
  std::memcpy(file.data() + 4, &kKvDumpVersion, sizeof(kKvDumpVersion));
  uint16_t id_bytes = 0;
  std::memcpy(&id_bytes, file.data() + kDumpIdBytesAt, sizeof(id_bytes));
  id_bytes = static_cast<uint16_t>(
      std::min<size_t>(id_bytes % (kMostKvDumpIdBytes + 1), file.size() - kKvDumpHeaderBytes));
  std::memcpy(file.data() + kDumpIdBytesAt, &id_bytes, sizeof(id_bytes));
  const uint64_t size = file.size();
  std::memcpy(file.data() + kDumpFileBytesAt, &size, sizeof(size));
  const std::span<const std::byte> sealed = file;
  const uint64_t id =
      Hash64(sealed.subspan(kKvDumpHeaderBytes, id_bytes), Hash64(sealed.first(kDumpHashAt)));
  const uint64_t hash = Hash64(sealed.subspan(kKvDumpHeaderBytes + id_bytes), id);
  std::memcpy(file.data() + kDumpHashAt, &hash, sizeof(hash));
  return file;
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const auto bytes = std::as_bytes(std::span(data, size));
  Parse(bytes);
  Parse(Sealed(bytes));
  return 0;
}
