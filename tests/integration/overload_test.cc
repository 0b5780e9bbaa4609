// More requests than the decode worker has blocks for.

#include <signal.h>

#include <algorithm>
#include <future>
#include <vector>

#include "base/retry_after.h"
#include "gtest/gtest.h"
#include "tests/support/test_cluster.h"

namespace tandem::overload_test {
namespace {

constexpr int kRequests = 64;
constexpr int32_t kPromptTokens = 90;
constexpr int32_t kOutputTokens = 30;

// With prompts that have nothing in common, so that no block serves two.
v1::GenerateRequest RequestNumber(int i, int32_t prompt_tokens = kPromptTokens,
                                  int32_t output_tokens = kOutputTokens) {
  v1::GenerateRequest request = TextRequest("", v1::ROUTE_DISAGGREGATED, output_tokens);
  for (int32_t at = 0; at < prompt_tokens; ++at) {
    request.mutable_token_ids()->add_ids(100 + (i * 131 + at * 17) % 1800);
  }
  return request;
}

class OverloadTest : public testing::Test {
 protected:
  std::vector<Outcome> AskAll(TestCluster& cluster) {
    std::vector<std::future<Outcome>> asked;
    for (int i = 0; i < kRequests; ++i) {
      asked.push_back(std::async(
          std::launch::async, [&cluster, i] { return Ask(cluster.client(), RequestNumber(i)); }));
    }
    std::vector<Outcome> outcomes;
    for (auto& one : asked) outcomes.push_back(one.get());
    return outcomes;
  }

  static int CountWhole(const std::vector<Outcome>& outcomes) {
    return static_cast<int>(
        std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& outcome) {
          return outcome.status.ok() && outcome.generation.choices.size() == 1 &&
                 outcome.generation.choices[0].token_ids.size() == size_t{kOutputTokens};
        }));
  }
};

// Room for three prompts at a time: the others wait in a queue that the status shows.
TEST_F(OverloadTest, RequestsWaitForBlocksOfTheDecodeWorkerAndAllAreServed) {
  TestCluster cluster({.unified = 0, .decode_flags = {"--kv-tokens=400"}});
  cluster.Signal("prefill-0", SIGSTOP);  // what has room keeps it until all are there
  auto outcomes = std::async(std::launch::async, [&] { return AskAll(cluster); });
  cluster.WaitFor("a queue of reservations", [](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* decode = FindWorker(status, "decode-0");
    return decode != nullptr && decode->load().handoffs().reservations() > 0 &&
           decode->load().handoffs().waiting_reservations() > kRequests / 2;
  });
  cluster.Signal("prefill-0", SIGCONT);
  EXPECT_EQ(CountWhole(outcomes.get()), kRequests);
  cluster.WaitUntilIdle();
}

// The queue is short: who finds it full is told when to come again, and nobody else suffers.
TEST_F(OverloadTest, WhoFindsTheQueueFullIsToldWhenToComeAgain) {
  TestCluster cluster(
      {.unified = 0, .decode_flags = {"--kv-tokens=400", "--max-waiting-reservations=8"}});
  cluster.Signal("prefill-0", SIGSTOP);
  auto asked = std::async(std::launch::async, [&] { return AskAll(cluster); });
  cluster.WaitFor("refusals", [](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* decode = FindWorker(status, "decode-0");
    return decode != nullptr && decode->load().handoffs().refused() > 0;
  });
  cluster.Signal("prefill-0", SIGCONT);
  const std::vector<Outcome> outcomes = asked.get();
  int refused = 0;
  for (const Outcome& outcome : outcomes) {
    if (outcome.status.ok()) continue;
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
    const auto after = RetryAfter(outcome.status);
    EXPECT_TRUE(after.has_value() && after->count() > 0) << outcome.status;
    ++refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(CountWhole(outcomes), kRequests - refused);
  EXPECT_GE(kRequests - refused, 8);
  cluster.WaitUntilIdle();
  EXPECT_EQ(CountWhole({Ask(cluster.client(), RequestNumber(0))}), 1);
}

// Each of the long ones takes all 100 blocks with its last token, whatever its last prompt block
// leaves free. None may wait longer than those before it take, nor hold up the short one behind.
TEST_F(OverloadTest, WhatJustFitsThePoolIsServedAndHoldsUpNobody) {
  TestCluster cluster(
      {.unified = 0, .decode_flags = {"--kv-tokens=1600", "--max-reservation-wait=30"}});
  int number = 0;
  for (const int32_t prompt_tokens : {1530, 1536, 1559, 1585, 1599}) {
    const v1::GenerateRequest whole = RequestNumber(++number, prompt_tokens, 1600 - prompt_tokens);
    auto asked = std::async(std::launch::async, [&] { return Ask(cluster.client(), whole); });
    const Outcome brief = Ask(cluster.client(), RequestNumber(++number, 30, 5));
    EXPECT_TRUE(brief.status.ok()) << brief.status;
    const Outcome outcome = asked.get();
    ASSERT_TRUE(outcome.status.ok()) << prompt_tokens << ": " << outcome.status;
    EXPECT_EQ(outcome.generation.choices.at(0).token_ids.size(), size_t(1600 - prompt_tokens));
  }
  cluster.WaitUntilIdle();
}

}  // namespace
}  // namespace tandem::overload_test
