#pragma once

#include <cstddef>
#include <span>

#include "kvstore/codec/extent_shape.h"

namespace tandem {

// An extent of a block has room for all tokens of the block, but the last block of a prompt may
// hold fewer. Packed, its tokens lie as in a block that has just their number: what is sent and
// kept then does not depend on the size of blocks.

// Copies the first packed.tokens tokens of `block`, an extent with room for `room` tokens, to
// `out`, which has packed.Bytes() bytes.
void PackTokens(const ExtentShape& packed, int32_t room, std::span<const std::byte> block,
                std::span<std::byte> out);
// Copies tokens that PackTokens packed back into `block`. The bytes of the block behind them stay
// as they are.
void UnpackTokens(const ExtentShape& packed, int32_t room, std::span<const std::byte> tokens,
                  std::span<std::byte> block);

}  // namespace tandem
