#pragma once

#include <memory>

#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/quantised_bits.h"

namespace tandem {

// A codec that rounds KV to integers (docs/kv_codecs.md#quantised). `bits` are those it encodes with;
// it decodes what was made with any.
std::unique_ptr<KvCodec> NewQuantisedCodec(QuantisedBits bits);

}  // namespace tandem
