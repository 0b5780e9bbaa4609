#include "kvstore/codec/packed_extent.h"

#include <cstring>

#include "base/check.h"

namespace tandem {
namespace {

// The sizes that copying tokens needs. The tokens of one head of K or V lie together, so `packed`
// and `room` are bytes of one head.
struct HeadBytes {
  size_t heads = 0;  // heads of K and of V together
  size_t packed = 0;
  size_t room = 0;
};

HeadBytes BytesOf(const ExtentShape& packed, int32_t room, size_t packed_bytes,
                  size_t block_bytes) {
  const auto heads = 2 * static_cast<size_t>(packed.num_kv_heads);
  const size_t token =
      static_cast<size_t>(packed.head_dim) * static_cast<size_t>(SizeOf(packed.dtype));
  const HeadBytes bytes = {.heads = heads,
                           .packed = static_cast<size_t>(packed.tokens) * token,
                           .room = static_cast<size_t>(room) * token};
  TANDEM_CHECK(packed.tokens <= room && packed_bytes == heads * bytes.packed &&
                   block_bytes == heads * bytes.room,
               "extents of another shape");
  return bytes;
}

}  // namespace

void PackTokens(const ExtentShape& packed, int32_t room, std::span<const std::byte> block,
                std::span<std::byte> out) {
  const HeadBytes bytes = BytesOf(packed, room, out.size(), block.size());
  for (size_t head = 0; head < bytes.heads; ++head) {
    std::memcpy(out.data() + head * bytes.packed, block.data() + head * bytes.room, bytes.packed);
  }
}

void UnpackTokens(const ExtentShape& packed, int32_t room, std::span<const std::byte> tokens,
                  std::span<std::byte> block) {
  const HeadBytes bytes = BytesOf(packed, room, tokens.size(), block.size());
  for (size_t head = 0; head < bytes.heads; ++head) {
    std::memcpy(block.data() + head * bytes.room, tokens.data() + head * bytes.packed,
                bytes.packed);
  }
}

}  // namespace tandem
