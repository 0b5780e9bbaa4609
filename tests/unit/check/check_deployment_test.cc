#include "server/check/check_deployment.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/access/api_keys.h"
#include "server/assembly/cost_options.h"
#include "server/check/check_report.h"
#include "tests/support/tree.h"

namespace tandem::check_deployment_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kSimulated = "simulated:" + TreePath("models/simulated/qwen3-8b-h200.json");

WorkerOptions WorkerOf(Role role, const std::string& name) {
  WorkerOptions options = {.role = role, .name = name};
  options.model_dir = SampleModel();
  options.routers = {"127.0.0.1:8080"};
  options.tuning.threads = 1;
  options.tuning.kv_tokens = 4096;
  return options;
}

// A router, a prefill and a decode worker that are in order.
CheckRequest RequestOf() {
  CheckRequest request;
  request.router = RouterProcessOptions{.model_dir = SampleModel()};
  request.workers = {WorkerOf(Role::kPrefill, "prefill-0"), WorkerOf(Role::kDecode, "decode-0")};
  request.ports = PortUse::kNotAsked;
  request.found_parameters = "/nowhere/cost_model.json";
  return request;
}

CheckReport Check(const CheckRequest& request) {
  return CheckDeployment(request, std::chrono::system_clock::now());
}

auto IsError(const std::string& part, const std::string& text) {
  return AllOf(Field(&Finding::severity, Severity::kError), Field(&Finding::part, part),
               Field(&Finding::text, HasSubstr(text)));
}

auto IsWarning(const std::string& text) {
  return AllOf(Field(&Finding::severity, Severity::kWarning),
               Field(&Finding::text, HasSubstr(text)));
}

TEST(CheckDeploymentTest, WhatIsInOrderHasNoErrorsAndAPlan) {
  const CheckReport report = Check(RequestOf());
  EXPECT_FALSE(report.findings.has_errors()) << CheckText(report);
  ASSERT_THAT(report.workers, SizeIs(2));
  EXPECT_EQ(report.workers[0].pool_tokens(), 4096);
  EXPECT_EQ(report.workers[0].longest_sequences(), 2);  // of 2048 tokens
  EXPECT_GT(report.workers[0].memory.weights, 9'000'000);
  ASSERT_THAT(report.links, SizeIs(1));
  EXPECT_EQ(report.links[0].transport, "ipc");
  EXPECT_THAT(report.no_advice,
              AllOf(HasSubstr("nothing is measured"), HasSubstr("tandem profile")));
  EXPECT_THAT(CheckText(report), HasSubstr("in order: 0 errors"));
}

TEST(CheckDeploymentTest, EveryErrorIsFoundAndNotOnlyTheFirst) {
  CheckRequest request = RequestOf();
  request.router->tuning.lease_ms = 999;
  request.router->tuning.policy = "classic";
  request.router->access_file = "/nowhere/access.json";
  request.router->tls = {.cert = "/nowhere.pem", .key = {}, .ca = {}};
  request.workers[0].tuning.max_context = 1 << 20;
  request.workers[1].model_dir = "/nowhere/model";
  request.workers[1].advertised_host = "0.0.0.0";
  const CheckReport report = Check(request);
  const std::vector<Finding>& found = report.findings.all();
  EXPECT_THAT(found, Contains(IsError("router", "--lease-ms 999")));
  EXPECT_THAT(found, Contains(IsError("router", "classic")));
  EXPECT_THAT(found, Contains(IsError("router", "/nowhere/access.json")));
  EXPECT_THAT(found, Contains(IsError("router", "TLS needs --tls-cert, --tls-key and --tls-ca")));
  EXPECT_THAT(found,
              Contains(IsError("prefill-0", "--max-context 1048576 exceeds the model's 2048")));
  EXPECT_THAT(found, Contains(IsError("decode-0", "/nowhere/model")));
  EXPECT_THAT(found, Contains(IsError("decode-0", "--advertise 0.0.0.0: nobody can connect")));
  EXPECT_THAT(CheckText(report), HasSubstr("not in order: 7 errors"));
}

TEST(CheckDeploymentTest, ARouterThatEverybodyReachesWithoutKeysIsAWarning) {
  CheckRequest request = RequestOf();
  request.router->host = "0.0.0.0";
  const CheckReport open = Check(request);
  EXPECT_FALSE(open.findings.has_errors());
  EXPECT_THAT(open.findings.all(), Contains(IsWarning("give --access-file with API keys")));
  EXPECT_THAT(open.findings.all(), Contains(IsWarning("may register as a worker")));
}

TEST(CheckDeploymentTest, KeysThatTravelInTheClearAreAWarning) {
  AccessFile access;
  ASSERT_TRUE(access
                  .Add({.id = "user",
                        .sha256 = HashOfSecret("secret"),
                        .tenant = "user",
                        .scopes = {Scope::kGenerate}})
                  .ok());
  const std::string path = testing::TempDir() + "check_deployment_access.json";
  std::ofstream(path) << access.ToJson();
  CheckRequest request = RequestOf();
  request.router->host = "0.0.0.0";
  request.router->access_file = path;
  const CheckReport report = Check(request);
  unlink(path.c_str());
  EXPECT_THAT(report.findings.all(), testing::Not(Contains(IsWarning("give --access-file"))));
  EXPECT_THAT(report.findings.all(), Contains(IsWarning("everything travels in the clear")));
}

TEST(CheckDeploymentTest, WorkersThatDoNotFitSayWhichPartAndWhichFlag) {
  CheckRequest request = RequestOf();
  const int64_t limit = HostMemoryLimit();
  for (WorkerOptions& worker : request.workers) {
    worker.tuning.kv_tokens = 0;
    worker.tuning.kv_bytes = static_cast<uint64_t>(limit / 10 * 6);
  }
  const CheckReport together = Check(request);
  EXPECT_THAT(together.findings.all(),
              ElementsAre(IsError("", "the 2 workers together would take")));
  request.workers[0].tuning.kv_bytes = static_cast<uint64_t>(limit) * 2;
  EXPECT_THAT(Check(request).findings.all(),
              Contains(IsError("prefill-0", "--kv-bytes or --kv-tokens")));
}

TEST(CheckDeploymentTest, TheLinkIsTheFirstThatBothMayUse) {
  CheckRequest request = RequestOf();
  request.workers[0].tuning.transfer.transport = "shm,tcp";
  const CheckReport report = Check(request);
  ASSERT_THAT(report.links, SizeIs(1));
  EXPECT_EQ(report.links[0].transport, "shm");
  EXPECT_EQ(report.links[0].left_out[0].transport, "ipc");
  EXPECT_THAT(report.links[0].left_out[0].reason,
              HasSubstr("--kv-transport=shm,tcp leaves it out"));
  request.workers[1].tuning.transfer.transport = "ipc";
  EXPECT_THAT(Check(request).findings.all(),
              Contains(IsError("prefill-0", "KV cannot go to decode-0")));
}

TEST(CheckDeploymentTest, ABufferThatHoldsNoConnectionIsAnError) {
  CheckRequest request = RequestOf();
  request.workers[0].tuning.transfer.buffer_bytes = 1 << 20;
  EXPECT_THAT(Check(request).findings.all(),
              Contains(IsError("prefill-0", "--kv-buffer-bytes=1048576")));
}

TEST(CheckDeploymentTest, ASimulatedFleetIsAdvisedByItsOwnParameters) {
  CheckRequest request = RequestOf();
  request.router->model_dir.clear();
  request.router->simulated = std::string(kSimulated).substr(std::string("simulated:").size());
  for (WorkerOptions& worker : request.workers) {
    worker.model_dir.clear();
    worker.tuning.device = kSimulated;
  }
  request.workload = {.input_tokens = 2048, .output_tokens = 256, .requests_per_second = 40};
  const CheckReport report = Check(request);
  EXPECT_FALSE(report.findings.has_errors()) << CheckText(report);
  ASSERT_TRUE(report.advice) << report.no_advice;
  EXPECT_EQ(report.parameters, request.router->simulated);
  ASSERT_TRUE(report.advice->disaggregated);
  EXPECT_GT(report.advice->disaggregated->prefill, 1);
  request.workload.input_tokens = 1 << 22;
  EXPECT_THAT(Check(request).no_advice, HasSubstr("--input-len 4194304"));
}

TEST(CheckDeploymentTest, ParametersOfAnotherMachineAreNotUsed) {
  CheckRequest request = RequestOf();
  request.found_parameters = request.router->simulated =
      std::string(kSimulated).substr(std::string("simulated:").size());
  request.router->simulated.clear();
  const CheckReport report = Check(request);
  EXPECT_FALSE(report.advice);
  EXPECT_THAT(report.no_advice, HasSubstr("qwen3-8b-h200.json"));
}

TEST(CheckDeploymentTest, AParameterFileThatCannotBeUsedIsAnErrorAndNotReplaced) {
  CheckRequest request = RequestOf();
  for (WorkerOptions& worker : request.workers) worker.tuning.cost_model = "/nowhere.json";
  const CheckReport report = Check(request);
  EXPECT_THAT(report.findings.all(), ElementsAre(IsError("prefill-0, decode-0", "/nowhere.json")));
  EXPECT_THAT(report.no_advice, HasSubstr("--cost-model /nowhere.json cannot be used"));
}

TEST(CheckDeploymentTest, AFileThatWasMeasuredHereIsUsedWhereItIsFound) {
  CheckRequest request = RequestOf();
  const CheckReport without = Check(request);
  ASSERT_THAT(without.workers, SizeIs(2));
  const InspectedWorker& worker = without.workers[0];
  CostParameters parameters;
  parameters.provenance = ProvenanceOf(worker.options, *worker.model, worker.engine);
  parameters.steps.alpha = {.token_ms = 0.1};
  parameters.steps.beta = {.buckets = {{.max_sequences = 1, .base_ms = 10}}, .sequence_ms = 0.1};
  request.found_parameters = testing::TempDir() + "found_" + std::to_string(getpid()) + ".json";
  std::ofstream(request.found_parameters) << WriteCostParameters(parameters);
  const CheckReport report = Check(request);
  std::remove(request.found_parameters.c_str());
  ASSERT_TRUE(report.advice) << report.no_advice;
  EXPECT_EQ(report.parameters, request.found_parameters);
  EXPECT_THAT(report.advice->arithmetic, Contains(HasSubstr("A prompt takes 51.2 ms")));
}

TEST(CheckDeploymentTest, TheJsonHasTheSameAsTheText) {
  const CheckReport report = Check(RequestOf());
  const nlohmann::json json = ParseJson(CheckJson(report));
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["workers"][1]["name"], "decode-0");
  EXPECT_EQ(json["workers"][1]["kv_tokens"], 4096);
  EXPECT_EQ(json["links"][0]["transport"], "ipc");
  EXPECT_EQ(json["advice"]["missing"], report.no_advice);
  EXPECT_EQ(json["host_memory_limit_bytes"], HostMemoryLimit());
}

}  // namespace
}  // namespace tandem::check_deployment_test
