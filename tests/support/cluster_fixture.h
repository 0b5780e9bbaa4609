#pragma once

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/cluster/cluster.h"
#include "tests/support/fake_clock.h"

namespace tandem {

// A cluster without workers, whose time the test owns: a lease of 5 s and a heartbeat of 1 s.
class ClusterFixture : public testing::Test {
 protected:
  v1::RegisterRequest Worker(const std::string& name, v1::WorkerRole role) {
    v1::RegisterRequest request;
    request.set_name(name);
    request.set_incarnation(10);
    request.set_role(role);
    request.set_address("127.0.0.1:1");
    request.set_model("sample");
    request.set_model_fingerprint(1);
    v1::KvLayout& layout = *request.mutable_layout();
    layout.set_num_layers(4);
    layout.set_num_kv_heads(2);
    layout.set_head_dim(64);
    layout.set_block_tokens(16);
    layout.set_dtype("bf16");
    request.set_device("cpu");
    request.set_data_address("tcp:127.0.0.1:2");
    request.set_wire_version(2);
    request.set_max_context_tokens(100);
    return request;
  }
  // Until a name may change hands.
  void LetFallSilent() {
    clock_.Advance(2 * cluster_.options().heartbeat + std::chrono::seconds(1));
  }
  absl::Status Beat(const std::string& name, uint64_t incarnation = 10, bool leaving = false) {
    v1::HeartbeatRequest request;
    request.set_leaving(leaving);
    request.set_name(name);
    request.set_incarnation(incarnation);
    request.mutable_load()->set_running(3);
    return cluster_.Heartbeat(request);
  }
  void ExpectDisagree(const v1::RegisterRequest& request, std::vector<std::string> said) {
    const absl::Status status = cluster_.Register(request);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    for (const std::string& part : said) {
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr(part));
    }
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const auto view = cluster_.View();
    for (const WorkerView& worker : view->workers) names.push_back(worker.id.name);
    return names;
  }

  std::vector<std::string> PeersOf(const std::string& prefill) {
    std::vector<std::string> names;
    const auto view = cluster_.View();
    for (const WorkerView& worker : view->workers) {
      if (worker.id.name != prefill) continue;
      for (const v1::KvPeer& peer : view->KvPeersOf(worker)) names.push_back(peer.name());
    }
    return names;
  }

  FakeClock clock_;
  Cluster cluster_{
      {.model = "sample", .lease = std::chrono::seconds(5), .heartbeat = std::chrono::seconds(1)},
      clock_};
};

}  // namespace tandem
