#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "router/policy/policies.h"
#include "tests/support/fake_clock.h"
#include "tests/support/measured_workers.h"

namespace tandem::auto_policy {

// The policy that chooses by predicted cost, among workers whose costs and queues the test sets.
class AutoPolicyTest : public testing::Test {
 protected:
  // Requests came long ago, so that the few of a test are no high rate of arrivals.
  AutoPolicyTest() {
    for (const char* const name : {"d0", "p0", "u0", "u1"}) Wait(name, 1);
    entries_.clear();
    clock_.Advance(std::chrono::minutes(1));
  }
  // One worker of each role; the KV link carries so many gigabytes per second.
  static ClusterView OneOfEach(double link_gb_per_s) {
    ClusterView view{.workers = {MeasuredWorker("d0", v1::WORKER_ROLE_DECODE),
                                 MeasuredWorker("p0", v1::WORKER_ROLE_PREFILL),
                                 MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED)}};
    SetLink(view.workers[1], "d0", link_gb_per_s);
    return view;
  }
  static RouteQuery Query(int32_t prompt, double output) {
    return {.prompt_tokens = prompt,
            .context_tokens = prompt + static_cast<int32_t>(output),
            .expected_output_tokens = output};
  }
  RouteDecision Choose(const ClusterView& view, const RouteQuery& query) {
    const auto decision = policy_->Choose(view, query);
    EXPECT_TRUE(decision.ok()) << decision.status();
    return *decision;
  }
  v1::Route RouteOf(const ClusterView& view, const RouteQuery& query) {
    return Choose(view, query).route;
  }
  // `count` sequences decode at the worker, with many tokens to go.
  void Decode(const std::string& name, int count) {
    for (int i = 0; i < count; ++i) {
      Wait(name, 100);
      entries_.back().AddTokens(1);
    }
  }
  // A request waits at the worker.
  void Wait(const std::string& name, int32_t prompt, int32_t output = 1000) {
    entries_.push_back(ledger_.Add({name, 1}, {.prompt_tokens = prompt,
                                               .output_tokens = static_cast<double>(output),
                                               .most_output_tokens = output}));
  }
  // What the decision sends to its workers is in flight until Forget.
  void Send(const RouteDecision& decision, const RouteQuery& query) {
    const bool is_unified = decision.route == v1::ROUTE_UNIFIED;
    RequestPart part{.kind = is_unified ? RequestPart::Kind::kUnified : RequestPart::Kind::kPrefill,
                     .prompt_tokens = query.prompt_tokens,
                     .output_tokens = query.expected_output_tokens,
                     .most_output_tokens = 1000};
    entries_.push_back(ledger_.Add(decision.prefill, part));
    if (is_unified) return;
    entries_.back().Send();
    part.kind = RequestPart::Kind::kDecode;
    entries_.push_back(ledger_.Add(decision.decode, part));
  }

  FakeClock clock_;
  RequestLedger ledger_{clock_};
  std::deque<RequestLedger::Entry> entries_;
  std::unique_ptr<RoutingPolicy> policy_ = NewAutoPolicy({.clock = clock_, .ledger = ledger_});
};

}  // namespace tandem::auto_policy
