#pragma once

#include <vector>

namespace tandem {

// How much a model's predictions change when K or V of one layer is rounded: the KL divergence in
// nats for a step of one spread (see CodecTables::Side). Only the ratios of the numbers matter.
// Both lists have one positive number for each layer; or both are empty, which stands for layers
// that are all alike.
struct KvSensitivity {
  std::vector<float> k;
  std::vector<float> v;

  friend bool operator==(const KvSensitivity&, const KvSensitivity&) = default;
};

}  // namespace tandem
