#pragma once

#include <memory>

#include "kvstore/codec/codec_tables.h"
#include "kvstore/codec/kv_codec.h"

namespace tandem {

// A codec that rounds KV to multiples of a step (docs/kv_codecs.md#rounded). `step` is the step of
// an average layer in spreads of its values (CodecTables::Side), from 2^-10 to 2. The tables are for
// rounding.
std::unique_ptr<KvCodec> NewRoundedCodec(std::shared_ptr<const CodecTables> tables, float step);

}  // namespace tandem
