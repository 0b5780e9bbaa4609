// The prefix cache over real processes: the same answers for less work.

#include <future>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/test_cluster.h"

namespace tandem::cached_prompts_test {
namespace {

// About 200 tokens, none of them like those of another `salt`.
v1::GenerateRequest LongRequest(v1::Route route, int32_t salt) {
  v1::GenerateRequest request = TextRequest("", route, 12);
  for (int32_t i = 0; i < 200; ++i) {
    request.mutable_token_ids()->add_ids(300 + (salt * 131 + i * 7) % 1000);
  }
  return request;
}

const v1::Usage& UsageOf(const Outcome& outcome) { return outcome.generation.summary.usage(); }

class CachedPromptsTest : public testing::Test {
 protected:
  Outcome Good(TestCluster& cluster, const v1::GenerateRequest& request) {
    Outcome outcome = Ask(cluster.client(), request);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    if (outcome.generation.choices.empty()) outcome.generation.choices.emplace_back();
    return outcome;
  }
  void ExpectSameTokens(const Outcome& a, const Outcome& b) {
    ASSERT_EQ(a.generation.choices.size(), b.generation.choices.size());
    for (size_t i = 0; i < a.generation.choices.size(); ++i) {
      EXPECT_EQ(a.generation.choices[i].token_ids, b.generation.choices[i].token_ids);
    }
  }
};

TEST_F(CachedPromptsTest, TheSecondAskingComputesLittleAndSaysSo) {
  TestCluster cluster;
  TestCluster without({.worker_flags = {"--prefix-cache=off"}});
  for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
    SCOPED_TRACE(Name(route));
    const v1::GenerateRequest request = LongRequest(route, route);
    const Outcome first = Good(cluster, request);
    cluster.WaitUntilIdle();
    const Outcome second = Good(cluster, request);
    EXPECT_EQ(UsageOf(first).cached_tokens(), 0);
    EXPECT_GE(UsageOf(second).cached_tokens(), 192) << "all full blocks of 200 tokens";
    EXPECT_LT(UsageOf(second).cached_tokens(), 200) << "the last token has to be computed";
    ExpectSameTokens(first, second);
    const Outcome uncached = Good(without, request);
    const Outcome uncached_again = Good(without, request);
    ExpectSameTokens(first, uncached);
    ExpectSameTokens(first, uncached_again);
    EXPECT_EQ(UsageOf(uncached_again).cached_tokens(), 0);
    if (route == v1::ROUTE_UNIFIED) continue;
    const v1::KvBytes& sent = first.generation.choices[0].finish.kv_bytes();
    const v1::KvBytes& sent_again = second.generation.choices[0].finish.kv_bytes();
    EXPECT_GT(sent.raw(), 0u);
    EXPECT_LT(sent_again.wire() * 5, sent.wire()) << "the decode worker has most of it";
  }
  cluster.WaitUntilIdle();
  without.WaitUntilIdle();
}

TEST_F(CachedPromptsTest, AnotherSaltSharesNothing) {
  TestCluster cluster({.prefill = 0, .decode = 0});
  v1::GenerateRequest request = LongRequest(v1::ROUTE_UNIFIED, 5);
  request.set_cache_salt("alice");
  const Outcome first = Good(cluster, request);
  cluster.WaitUntilIdle();
  request.set_cache_salt("bob");
  const Outcome foreign = Good(cluster, request);
  EXPECT_EQ(UsageOf(foreign).cached_tokens(), 0);
  ExpectSameTokens(first, foreign);
  request.set_cache_salt("alice");
  EXPECT_GE(UsageOf(Good(cluster, request)).cached_tokens(), 192);
}

TEST_F(CachedPromptsTest, AChangedPromptIsNeverTakenForTheOldOne) {
  TestCluster cluster;
  for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
    const v1::GenerateRequest request = LongRequest(route, 9);
    Good(cluster, request);
    cluster.WaitUntilIdle();
    for (const int at : {0, 100, 199}) {
      v1::GenerateRequest changed = request;
      changed.mutable_token_ids()->set_ids(at, 5);
      const Outcome shared = Good(cluster, changed);
      EXPECT_LE(UsageOf(shared).cached_tokens(), at);
      changed.set_cache_salt("alone" + std::to_string(at) + std::to_string(route));
      ExpectSameTokens(shared, Good(cluster, changed));
      cluster.WaitUntilIdle();
    }
  }
}

TEST_F(CachedPromptsTest, SeveralChoicesAndBeamsOfACachedPrompt) {
  TestCluster cluster;
  for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
    SCOPED_TRACE(Name(route));
    v1::GenerateRequest sampled = LongRequest(route, 20 + route);
    sampled.set_n(4);
    sampled.mutable_sampling()->set_temperature(0.8f);
    sampled.mutable_sampling()->set_seed(2);
    const Outcome fresh = Good(cluster, sampled);
    cluster.WaitUntilIdle();
    const Outcome again = Good(cluster, sampled);
    EXPECT_GE(UsageOf(again).cached_tokens(), 192);
    ExpectSameTokens(fresh, again);
    v1::GenerateRequest beams = LongRequest(route, 20 + route);
    beams.clear_sampling();
    beams.set_n(4);
    beams.mutable_beam_search()->set_beam_width(4);
    const Outcome cached = Good(cluster, beams);
    EXPECT_GE(UsageOf(cached).cached_tokens(), 192);
    beams.set_cache_salt("fresh");
    ExpectSameTokens(cached, Good(cluster, beams));
    cluster.WaitUntilIdle();
  }
}

v1::GenerateRequest CrowdRequest(v1::Route route, int32_t i) {
  v1::GenerateRequest request = LongRequest(route, i);
  request.mutable_token_ids()->mutable_ids()->Truncate(100);
  request.set_max_tokens(300);
  return request;
}

// Has the workers believe that outputs are short, so that they let in more than will fit.
void AnswerBriefly(TestCluster& cluster, v1::Route route) {
  v1::GenerateRequest request = CrowdRequest(route, 100);
  request.set_max_tokens(2);
  const Outcome two = Ask(cluster.client(), request);
  ASSERT_TRUE(two.status.ok()) << two.status;
  request.add_stop_token_ids(two.generation.choices[0].token_ids[1]);
  request.set_max_tokens(300);
  for (int i = 0; i < 20; ++i) {
    const Outcome brief = Ask(cluster.client(), request);
    ASSERT_TRUE(brief.status.ok()) << brief.status;
  }
}

uint64_t Preempted(TestCluster& cluster) {
  const auto status = cluster.client().GetStatus(std::chrono::seconds(30));
  uint64_t preempted = 0;
  if (!status.ok()) return preempted;
  for (const v1::WorkerStatus& worker : status->workers()) {
    preempted += worker.load().kv().preempted_recompute() + worker.load().kv().preempted_swap();
  }
  return preempted;
}

// A pool for a quarter of what is asked for at once.
TEST_F(CachedPromptsTest, ACrowdedPoolAnswersAllTheSame) {
  constexpr int32_t kRequests = 10;
  std::vector<Outcome> alone;
  TestCluster ample({.prefill = 0, .decode = 0});
  for (int32_t i = 0; i < kRequests; ++i) {
    alone.push_back(Good(ample, CrowdRequest(v1::ROUTE_UNIFIED, i)));
  }
  for (const std::vector<std::string>& host :
       {std::vector<std::string>{"--host-kv-bytes=0"},
        {"--host-kv-bytes=8MiB"},
        {"--host-kv-bytes=8MiB", "--host-kv-codec=mask-rice"}}) {
    for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
      SCOPED_TRACE(host.back() + " " + std::string(Name(route)));
      std::vector<std::string> flags = {"--kv-tokens=1024"};
      flags.insert(flags.end(), host.begin(), host.end());
      TestCluster crowded({.worker_flags = flags});
      ASSERT_NO_FATAL_FAILURE(AnswerBriefly(crowded, route));
      std::vector<std::future<Outcome>> outcomes;
      for (int32_t i = 0; i < kRequests; ++i) {
        outcomes.push_back(std::async(std::launch::async, [&crowded, route, i] {
          return Ask(crowded.client(), CrowdRequest(route, i));
        }));
      }
      for (int32_t i = 0; i < kRequests; ++i) {
        const Outcome outcome = outcomes[i].get();
        EXPECT_TRUE(outcome.status.ok()) << outcome.status;
        if (outcome.status.ok()) ExpectSameTokens(outcome, alone[i]);
      }
      crowded.WaitUntilIdle();
      EXPECT_GT(Preempted(crowded), 0u) << "so this test says nothing";
    }
  }
}

}  // namespace
}  // namespace tandem::cached_prompts_test
