#include "kvstore/kv_parts.h"

#include "base/kv_row.h"
#include "kvstore/codec/codec_tables.h"

namespace tandem {

ExtentParts PartsOfRawExtent(const KvLayout& layout, int32_t tokens) {
  const auto part = [&](KvSide side) -> PartBytes {
    const int64_t token =
        layout.num_kv_heads * KvRowBytes(layout.dtype, side, int64_t{layout.head_dim});
    return {.kv_bytes = static_cast<uint64_t>(token * tokens),
            .wire_bytes = static_cast<uint64_t>(token * layout.block_tokens)};
  };
  return {.k = part(KvSide::kKeys), .v = part(KvSide::kValues), .raw = true};
}

int64_t MostTablesBytes(const KvLayout& layout) {
  const ExtentShape shape = {layout.dtype, layout.num_kv_heads, layout.head_dim};
  return static_cast<int64_t>(
      CodecTables::SerializedBytes(shape, layout.num_layers, CodecTables::Use::kRounding));
}

}  // namespace tandem
