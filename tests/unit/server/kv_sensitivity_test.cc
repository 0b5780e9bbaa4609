#include "server/assembly/kv_sensitivity.h"

#include <string>

#include "engine/profile/kv_sensitivity_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/checkpoint/checkpoint_files.h"

namespace tandem::kv_sensitivity_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kModel = 7;
constexpr int32_t kNumLayers = 2;

class KvSensitivityTest : public testing::Test {
 protected:
  static MeasuredKvSensitivity Example(uint64_t model) {
    return {.model_fingerprint = model, .sensitivity = {.k = {1, 2}, .v = {3, 4}}};
  }
  WorkerOptions Options(Role role) const {
    WorkerOptions options;
    options.role = role;
    options.model_dir = directory_.path();
    return options;
  }
  absl::StatusOr<KvSensitivity> Of(Role role) const {
    return KvSensitivityFor(Options(role), kModel, kNumLayers);
  }

  TempDirectory directory_;
};

TEST_F(KvSensitivityTest, APrefillWorkerHasWhatIsInTheFolderOfItsModel) {
  auto sensitivity = Of(Role::kPrefill);
  ASSERT_TRUE(sensitivity.ok()) << "a model that was not measured: " << sensitivity.status();
  EXPECT_EQ(*sensitivity, KvSensitivity{});
  directory_.Write("kv_sensitivity.json", WriteKvSensitivity(Example(kModel)));
  sensitivity = Of(Role::kPrefill);
  ASSERT_TRUE(sensitivity.ok()) << sensitivity.status();
  EXPECT_EQ(*sensitivity, Example(kModel).sensitivity);
}

TEST_F(KvSensitivityTest, OnlyWhoRoundsKvIsStoppedByAFileThatDoesNotFit) {
  const std::string file =
      directory_.Write("kv_sensitivity.json", WriteKvSensitivity(Example(kModel + 1)));
  const absl::Status refused = Of(Role::kPrefill).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(file));
  for (const Role role : {Role::kDecode, Role::kUnified}) {
    const auto unused = Of(role);
    ASSERT_TRUE(unused.ok()) << unused.status();
    EXPECT_EQ(*unused, KvSensitivity{});
  }
  WorkerOptions simulated = Options(Role::kPrefill);
  simulated.tuning.device = "simulated:a-device.json";
  EXPECT_TRUE(KvSensitivityFor(simulated, kModel, kNumLayers).ok());
}

}  // namespace
}  // namespace tandem::kv_sensitivity_test
