#include "bench/simulator/fleet.h"

#include <fstream>
#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/simulated_fleet.h"
#include "tests/support/tree.h"

namespace tandem::simulator::fleet_test {
namespace {

using testing::HasSubstr;

// A copy of a shipped file, of another model and with or without its links.
std::string WriteParameters(const std::string& name, const std::string& model, bool with_link) {
  nlohmann::json json = ParseJson(ReadFile(TreePath("models/simulated/qwen3-8b-h200.json")));
  json["provenance"]["model"] = model;
  if (!with_link) json["links"] = nlohmann::json::array();
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << json.dump();
  return path;
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(FleetTest, MakesNamedWorkersOfEachPart) {
  const std::string a = WriteParameters("fleet_a.json", "model", true);
  const std::string b = WriteParameters("fleet_b.json", "model", true);
  const auto parts = ParseFleet("prefill=1:" + a + ",decode=2:" + a + ",decode=1:" + b);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto fleet = MakeFleet(*parts, {});
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  ASSERT_EQ(fleet->size(), 4U);
  EXPECT_EQ((*fleet)[0].name, "prefill-0");
  EXPECT_EQ((*fleet)[3].name, "decode-2");
  EXPECT_NE((*fleet)[3].model, (*fleet)[2].model);
  EXPECT_EQ((*fleet)[1].model, (*fleet)[2].model);
  EXPECT_EQ((*fleet)[0].model->model, "simulated/model");
  EXPECT_EQ((*fleet)[0].model->layout.BytesPerToken(), 36 * 8 * 128 * 2 * 2);
  EXPECT_EQ((*fleet)[0].model->max_context_tokens, 40960);
}

TEST(FleetTest, RefusesFleetsThatAreNone) {
  for (const char* text : {"", ",", "unified", "unified=2", "unified=two:a.json",
                           "unified=0:a.json", "unified=-1:a.json", "unified=2000:a.json",
                           "router=1:a.json", "unified=1:", "prefill=1:a.json", "decode=1:a.json",
                           "unified=600:a.json,unified=600:a.json"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseFleet(text).status())) << text;
  }
}

TEST(FleetTest, RefusesFilesThatAreMissingOrDoNotFit) {
  const auto make = [](const std::string& text, const ModelOverrides& overrides) {
    return MakeFleet(*ParseFleet(text), overrides).status();
  };
  EXPECT_TRUE(absl::IsNotFound(make("unified=1:/no/such/file.json", {})));
  const std::string without_link = WriteParameters("fleet_c.json", "model", false);
  EXPECT_TRUE(make("unified=1:" + without_link, {}).ok());
  EXPECT_THAT(MessageOf(make("prefill=1:" + without_link + ",decode=1:" + without_link, {})),
              HasSubstr("no link"));
  const std::string other = WriteParameters("fleet_d.json", "other", false);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(make("unified=1:" + without_link + ",unified=1:" + other, {})));
  EXPECT_THAT(MessageOf(make("unified=1:" + other, {.kv_tokens = 3})), HasSubstr("one block"));
}

TEST(FleetTest, WorkersHaveTheCostsOfThoseThatServe) {
  const std::string file = WriteParameters("fleet_e.json", "model", true);
  const auto steps = [](double alpha_ms) {
    return *StepModel::Create({.alpha = {.token_ms = alpha_ms},
                               .beta = {.buckets = {{.max_sequences = 1, .base_ms = 1}}}});
  };
  ModelOverrides overrides;
  overrides.costs = {{"prefill-0", "prefill", steps(1)},
                     {"prefill-1", "prefill", steps(2)},
                     {"d", "decode", steps(3)}};
  const auto fleet = MakeFleet(*ParseFleet("prefill=3:" + file + ",decode=1:" + file), overrides);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  const auto alpha = [&](size_t i) {
    return (*fleet)[i].model->steps.coefficients().alpha.token_ms;
  };
  EXPECT_EQ(alpha(0), 1);
  EXPECT_EQ(alpha(1), 2);
  EXPECT_EQ(alpha(2), 1) << "the first of its role";
  EXPECT_EQ(alpha(3), 3);
  EXPECT_EQ((*fleet)[3].model->kv_tokens, (*fleet)[0].model->kv_tokens) << "of the file";
  EXPECT_THAT(MessageOf(MakeFleet(*ParseFleet("unified=1:" + file), overrides).status()),
              HasSubstr("no unified worker of the service"));
}

TEST(FleetTest, ReadsDisturbances) {
  const std::vector<WorkerConfig> fleet = Unified(2);
  const auto slow = ParseDisturbance("slow:unified-1@2.5:3", fleet);
  ASSERT_TRUE(slow.ok()) << slow.status();
  EXPECT_EQ(slow->kind, Disturbance::Kind::kSlow);
  EXPECT_EQ(slow->at, std::chrono::milliseconds(2500));
  EXPECT_EQ(slow->factor, 3);
  EXPECT_TRUE(ParseDisturbance("lose:unified-0@0", fleet).ok());
  EXPECT_TRUE(ParseDisturbance("leave:unified-0@1e3", fleet).ok());
  for (const char* text : {"", "lose", "lose:unified-0", "lose:unified-9@1", "lose:unified-0@-1",
                           "lose:unified-0@nan", "lose:unified-0@1:2", "slow:unified-0@1",
                           "slow:unified-0@1:0", "slow:unified-0@1:nan", "kill:unified-0@1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDisturbance(text, fleet).status())) << text;
  }
}

}  // namespace
}  // namespace tandem::simulator::fleet_test
