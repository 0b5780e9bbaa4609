#include "tests/support/test_model.h"

#include <utility>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "tests/support/tree.h"

namespace tandem {
namespace {

template <typename T>
T ValueOf(absl::StatusOr<T> value) {
  TANDEM_CHECK(value.ok(), value.status().ToString());
  return *std::move(value);
}

}  // namespace

std::unique_ptr<TestModel> TestModel::Load(const std::string& directory, int num_threads,
                                           const std::string& device) {
  const bool absolute = directory.starts_with('/');
  const std::string path = absolute ? directory : TreePath(directory);
  auto model = std::make_unique<TestModel>();
  model->config = ValueOf(LoadModelConfig(path));
  model->backend = ValueOf(OpenBackend(device, {.num_threads = num_threads}));
  Backend packing = ValueOf(OpenBackend(device, {.num_threads = num_threads}));
  model->weights = ValueOf(LoadResidentWeights(model->config, ValueOf(Checkpoint::Open(path)),
                                               *model->backend.device, std::move(packing),
                                               WeightsAs::kStored, nullptr));
  return model;
}

}  // namespace tandem
