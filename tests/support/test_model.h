#pragma once

#include <memory>
#include <string>

#include "kernels/registry.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/weight_store.h"
#include "tests/support/test_device.h"

namespace tandem {

// A checkpoint of the tree, loaded on a backend of its own: what one engine runs on.
struct TestModel {
  ModelConfig config;
  Backend backend;
  std::unique_ptr<WeightStore> weights;

  // directory: relative to the root of the tree, or absolute. CHECKs that it loads.
  static std::unique_ptr<TestModel> Load(const std::string& directory, int num_threads,
                                         const std::string& device = TestDevice());
};

}  // namespace tandem
