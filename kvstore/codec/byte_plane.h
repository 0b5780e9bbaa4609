#pragma once

#include <memory>

#include "kvstore/codec/kv_codec.h"

namespace tandem {

// Which predictors an encoder tries. A codec of either kind decodes the frames of both.
enum class PlanePredictors {
  kAll,
  kRuntime  // the three that the earlier runtime had, so that rates can be compared with its own
};

// The codec of the earlier systems, as a reference to measure against
// (docs/kv_codecs.md#byte-plane): it takes the bytes of one significance of all elements together
// as a plane, tries every predictor with every back-end, and keeps the smallest. It has no tables,
// and encodes a fiftieth (kRuntime) to a hundredth (kAll) as fast as mask-rice.
std::unique_ptr<KvCodec> NewBytePlaneCodec(PlanePredictors predictors = PlanePredictors::kAll);

}  // namespace tandem
