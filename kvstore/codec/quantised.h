#pragma once

#include <memory>

#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/quantised_bits.h"

namespace tandem {

// A codec that rounds KV to integers (docs/kv_codecs.md#quantised). It encodes with `bits`, and
// decodes frames that were encoded with any bits.
std::unique_ptr<KvCodec> NewQuantisedCodec(QuantisedBits bits);

}  // namespace tandem
