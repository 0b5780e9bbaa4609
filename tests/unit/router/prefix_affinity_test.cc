// Placement by what workers have cached, and by session.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/policy/bounded_load.h"
#include "router/policy/policies.h"
#include "router/prefix/session_table.h"
#include "tests/support/fake_clock.h"
#include "tests/support/worker_views.h"

namespace tandem::prefix_affinity_test {
namespace {

using ::testing::HasSubstr;

class PrefixAffinityTest : public testing::Test {
 protected:
  PrefixAffinityTest() {
    for (const char* name : {"u0", "u1", "u2"}) {
      view_.workers.push_back(MakeWorker(name, v1::WORKER_ROLE_UNIFIED));
    }
  }
  // A query for a prompt of 1,000 tokens.
  static RouteQuery Query(std::vector<WorkerHit> hits) {
    RouteQuery query;
    query.prompt_tokens = 1000;
    query.hits = std::make_shared<const std::vector<WorkerHit>>(std::move(hits));
    return query;
  }
  std::string Chosen(const RouteQuery& query) {
    const auto decision = policy_->Choose(view_, query);
    EXPECT_TRUE(decision.ok()) << decision.status();
    return decision.ok() ? decision->prefill.name + decision->decode.name : "";
  }
  void SetLoad(size_t index, int32_t sequences) { SetRunning(view_.workers[index], sequences); }

  ClusterView view_;
  const std::unique_ptr<RoutingPolicy> policy_ = NewPrefixAffinityPolicy();
};

TEST_F(PrefixAffinityTest, TheLongestHitWins) {
  SetLoad(0, 1);
  SetLoad(1, 3);
  SetLoad(2, 2);
  EXPECT_EQ(Chosen(Query({{{"u1", 1}, 500}, {{"u2", 1}, 400}})), "u1");
  EXPECT_EQ(Chosen(Query({{{"u1", 1}, 500}, {{"u2", 1}, 500}})), "u2") << "the less busy one";
  EXPECT_EQ(Chosen(Query({})), "u0") << "nobody has it, and u0 is the least busy";
  EXPECT_EQ(Chosen(Query({{{"u1", 2}, 500}})), "u0") << "another life of u1 had it";
}

TEST_F(PrefixAffinityTest, AHitOfLessThanAQuarterDoesNotCount) {
  SetLoad(1, 1);
  EXPECT_EQ(Chosen(Query({{{"u1", 1}, 249}})), "u0");
  EXPECT_EQ(Chosen(Query({{{"u1", 1}, 250}})), "u1");
}

// The bound is 2,048 tokens, or 32 sequences, above an idle worker.
TEST_F(PrefixAffinityTest, AnOverloadedWorkerIsPassedOverUntilItIsRelieved) {
  const RouteQuery query = Query({{{"u1", 1}, 900}});
  SetLoad(2, 1);
  SetLoad(1, 32);
  EXPECT_EQ(Chosen(query), "u1");
  SetLoad(1, 33);
  EXPECT_EQ(Chosen(query), "u0");
  SetLoad(1, 17);
  EXPECT_EQ(Chosen(query), "u0") << "it is not relieved yet";
  SetLoad(1, 16);
  EXPECT_EQ(Chosen(query), "u1");
  SetLoad(1, 32);
  EXPECT_EQ(Chosen(query), "u1") << "within the bounds it stays what it was";
}

TEST_F(PrefixAffinityTest, ALoadBetweenTheBoundsNeverMovesRequestsToAndFro) {
  const RouteQuery query = Query({{{"u1", 1}, 900}});
  int changes = 0;
  std::string last = Chosen(query);
  for (int i = 0; i < 100; ++i) {
    SetLoad(1, i % 2 == 0 ? 18 : 32);
    const std::string now = Chosen(query);
    changes += now == last ? 0 : 1;
    last = now;
  }
  EXPECT_EQ(changes, 0);
}

TEST_F(PrefixAffinityTest, ThePrefillWorkerIsTakenByHitAndTheDecodeWorkerByLoad) {
  view_.workers = {
      MakeWorker("d0", v1::WORKER_ROLE_DECODE), MakeWorker("d1", v1::WORKER_ROLE_DECODE),
      MakeWorker("p0", v1::WORKER_ROLE_PREFILL), MakeWorker("p1", v1::WORKER_ROLE_PREFILL)};
  SetLoad(0, 2);
  SetLoad(3, 2);
  EXPECT_EQ(Chosen(Query({{{"d0", 1}, 900}, {{"p1", 1}, 900}})), "p1d1");
}

class SessionTest : public PrefixAffinityTest {
 protected:
  static RouteQuery Of(const SessionPlace& place) {
    RouteQuery query = Query({});
    query.session = place;
    return query;
  }
};

TEST_F(SessionTest, EveryPolicyKeepsASessionWhereItWas) {
  const FakeClock clock;
  const RequestLedger ledger(clock);
  const PolicyOptions options = {.classic = ClassicCoefficients{.alpha_ms = 0.1,
                                                                .beta_ms = 10,
                                                                .gamma_ms = 0.1,
                                                                .batch_thresh = 16,
                                                                .bandwidth_gb_per_s = 1}};
  for (const std::string& name : RoutingPolicyNames()) {
    const auto policy =
        *NewRoutingPolicy(name, {.clock = clock, .ledger = ledger, .options = options});
    SetLoad(1, 5);
    for (int i = 0; i < 3; ++i) {
      const auto decision = policy->Choose(view_, Of({.prefill = {"u1", 1}, .decode = {}}));
      ASSERT_TRUE(decision.ok());
      EXPECT_EQ(decision->prefill.name, "u1") << name;
    }
  }
  const auto decision = policy_->Choose(view_, Of({.prefill = {"u1", 1}, .decode = {}}));
  ASSERT_TRUE(decision.ok());
  EXPECT_THAT(decision->reason, HasSubstr("session"));
}

TEST_F(SessionTest, ASessionMovesWhenItsWorkerIsOverloadedOrGone) {
  const RouteQuery query = Of({.prefill = {"u1", 1}, .decode = {}});
  SetLoad(2, 1);
  SetLoad(1, 33);
  EXPECT_EQ(Chosen(query), "u0");
  SetLoad(1, 1);
  EXPECT_EQ(Chosen(query), "u1");
  view_.workers[1].suspected = true;
  EXPECT_EQ(Chosen(query), "u0");
  view_.workers[1].suspected = false;
  view_.workers[1].id.incarnation = 2;
  EXPECT_EQ(Chosen(query), "u0");
}

TEST_F(SessionTest, BothWorkersOfASessionAreKept) {
  for (const char* name : {"p0", "p1"}) {
    view_.workers.push_back(MakeWorker(name, v1::WORKER_ROLE_PREFILL));
  }
  for (const char* name : {"d0", "d1"}) {
    view_.workers.push_back(MakeWorker(name, v1::WORKER_ROLE_DECODE));
  }
  std::ranges::sort(view_.workers, {}, &WorkerView::id);
  RouteQuery query = Of({.prefill = {"p1", 1}, .decode = {"d1", 1}});
  EXPECT_EQ(Chosen(query), "p1d1");
  query.excluded = {{"d1", 1}};
  EXPECT_EQ(Chosen(query), "u0") << "half of a session's place is none";
  query.excluded.clear();
  query.prompt_at = WorkerId{"p0", 1};
  EXPECT_EQ(Chosen(query), "p0d0") << "this request has begun elsewhere";
}

TEST(SessionTableTest, RemembersTheSessionsUsedLast) {
  SessionTable table(2);
  const SessionPlace place = {.prefill = {"u0", 1}, .decode = {}};
  table.Set(1, place);
  table.Set(2, place);
  table.Set(1, place);
  table.Set(3, {.prefill = {"p0", 1}, .decode = {"d0", 1}});
  EXPECT_EQ(table.Find(1), place);
  EXPECT_EQ(table.Find(2), std::nullopt);
  EXPECT_EQ(table.Find(3)->decode.name, "d0");
  table.Set(3, place);
  const v1::SessionUse use = table.Use();
  EXPECT_EQ(use.entries(), 2u);
  EXPECT_EQ(use.limit(), 2u);
  EXPECT_EQ(use.kept(), 1u);
  EXPECT_EQ(use.moved(), 1u);
  EXPECT_EQ(use.forgotten(), 1u);
}

TEST(SessionTableTest, TenantsHaveSessionsOfTheirOwn) {
  EXPECT_EQ(SessionKey("alice", ""), 0u);
  EXPECT_NE(SessionKey("alice", "1"), SessionKey("bob", "1"));
  EXPECT_NE(SessionKey("alice", "1"), SessionKey("alice", "2"));
}

}  // namespace
}  // namespace tandem::prefix_affinity_test
