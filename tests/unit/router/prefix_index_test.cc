#include "router/prefix/prefix_index.h"

#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/prefix/prefix_claim.h"
#include "tests/support/cached_worker.h"

namespace tandem::prefix_index_test {
namespace {

using ::testing::HasSubstr;

class PrefixIndexTest : public testing::Test {
 protected:
  static v1::CacheChanges Nothing(uint64_t since, uint64_t sequence) {
    return Added(since, sequence, *Hashed({}), 0);
  }
  // "a=16 b=8": the workers with hits.
  std::string Hits(const PromptHashes& prompt) {
    std::string text;
    for (const WorkerHit& hit : index_.Find(prompt)) {
      text += (text.empty() ? "" : " ") + hit.worker.name + "=" + std::to_string(hit.tokens);
    }
    return text;
  }

  PrefixIndex index_{1 << 20};
  const WorkerView a_ = MakeCachingWorker("a", v1::WORKER_ROLE_UNIFIED);
  const WorkerView b_ = MakeCachingWorker("b", v1::WORKER_ROLE_UNIFIED);
  const std::shared_ptr<const PromptHashes> prompt_ = Hashed(PromptFrom(1, 40));
};

TEST_F(PrefixIndexTest, FindsTheLongestPrefixOfEachWorker) {
  index_.Apply(a_.id, Added(0, 1, *prompt_, 2));
  index_.Apply(b_.id, Added(0, 1, *prompt_, 4));
  EXPECT_EQ(Hits(*prompt_), "a=16 b=32");
  EXPECT_EQ(Hits(*Hashed(PromptFrom(1, 23))), "a=16 b=16");
  EXPECT_EQ(Hits(*Hashed(PromptFrom(2, 40))), "");
  EXPECT_EQ(Hits(*Hashed(PromptFrom(1, 40), "salt")), "") << "another salt shares nothing";
  std::vector<int32_t> diverging = PromptFrom(1, 40);
  diverging[12] = 0;
  EXPECT_EQ(Hits(*Hashed(diverging)), "a=8 b=8");
}

TEST_F(PrefixIndexTest, OneTokenIsAlwaysComputed) {
  index_.Apply(a_.id, Added(0, 1, *prompt_, 5));
  EXPECT_EQ(Hits(*prompt_), "a=39");
}

TEST_F(PrefixIndexTest, RemovedBlocksAndForgottenWorkersAreNoHits) {
  index_.Apply(a_.id, Added(0, 1, *prompt_, 3));
  index_.Apply(b_.id, Added(0, 1, *prompt_, 3));
  v1::CacheChanges removal = Nothing(1, 2);
  removal.add_removed(prompt_->chains[0].hashes[2]);
  removal.add_removed(prompt_->chains[0].hashes[1]);
  index_.Apply(a_.id, removal);
  EXPECT_EQ(Hits(*prompt_), "a=8 b=24");
  WorkerView again = b_;
  again.id.incarnation = 2;
  index_.KeepOnly({.workers = {a_, again}});
  EXPECT_EQ(Hits(*prompt_), "a=8");
  EXPECT_EQ(index_.Latest(b_.id), 0u);
  EXPECT_EQ(index_.Latest(a_.id), 2u);
}

TEST_F(PrefixIndexTest, AReportThatDoesNotContinueTheLatestIsNotApplied) {
  EXPECT_EQ(index_.Apply(a_.id, Added(3, 4, *prompt_, 2)), 0u) << "the router is new";
  EXPECT_EQ(Hits(*prompt_), "");
  EXPECT_EQ(index_.Apply(a_.id, Added(0, 5, *prompt_, 1)), 5u);
  EXPECT_EQ(index_.Apply(a_.id, Added(4, 6, *prompt_, 3)), 5u);
  EXPECT_EQ(Hits(*prompt_), "a=8");
  EXPECT_EQ(index_.Apply(a_.id, Nothing(0, 7)), 7u) << "one from scratch is always applied";
  EXPECT_EQ(Hits(*prompt_), "");
  EXPECT_EQ(index_.Use().refused(), 2u);
  EXPECT_EQ(index_.Use().resets(), 2u);
}

TEST_F(PrefixIndexTest, ReportsThatNoWorkerSendsAreRefused) {
  EXPECT_EQ(PrefixIndex::Check(Added(0, 1, *prompt_, 5), 5), absl::OkStatus());
  const absl::Status many = PrefixIndex::Check(Added(0, 1, *prompt_, 5), 4);
  EXPECT_EQ(many.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(many.ToString(), HasSubstr("5 changes; at most 4"));
  EXPECT_THAT(PrefixIndex::Check(Nothing(0, 0), 4).ToString(), HasSubstr("cache.sequence is 0"));
}

TEST_F(PrefixIndexTest, APromptThatIsBeingComputedIsAHit) {
  PrefixClaim claim;
  claim = PrefixClaim(&index_, a_, prompt_);
  EXPECT_EQ(claim.predicted_tokens(), 0);
  EXPECT_EQ(Hits(*Hashed(PromptFrom(1, 20))), "a=16");
  for (uint64_t i = 0; i < 5; ++i) index_.Apply(a_.id, Nothing(i, i + 1));
  EXPECT_EQ(Hits(*prompt_), "a=39") << "however long it waits there";
  claim.Reset();
  EXPECT_EQ(Hits(*prompt_), "") << "it was not computed";
}

TEST_F(PrefixIndexTest, AComputedPromptIsAHitUntilTheReportThatMustHaveIt) {
  index_.Apply(a_.id, Nothing(0, 1));
  {
    PrefixClaim claim;
    claim = PrefixClaim(&index_, a_, prompt_);
    claim.OnComputed();
  }
  EXPECT_EQ(Hits(*prompt_), "a=39") << "it ended well";
  v1::CacheChanges piece = Nothing(1, 2);
  piece.set_more(true);
  index_.Apply(a_.id, piece);
  index_.Apply(a_.id, Nothing(2, 3));  // it may have been under way
  EXPECT_EQ(Hits(*prompt_), "a=39");
  index_.Apply(a_.id, Added(3, 4, *prompt_, 2));
  EXPECT_EQ(Hits(*prompt_), "a=16") << "what the worker says counts from now on";
}

TEST_F(PrefixIndexTest, ExpectationsAreBoundedAndOnlyOfWorkersWithSuchBlocks) {
  const WorkerView uncached = MakeWorker("a", v1::WORKER_ROLE_UNIFIED);
  EXPECT_EQ(index_.Expect(uncached, prompt_).id, 0u);
  EXPECT_EQ(Hits(*prompt_), "");
  index_.Expect(a_, prompt_);
  for (size_t i = 0; i < PrefixIndex::kMostExpected; ++i) {
    EXPECT_EQ(Hits(*prompt_), "a=39");
    index_.Expect(a_, Hashed(PromptFrom(1000 + static_cast<int32_t>(i), 40)));
  }
  EXPECT_EQ(Hits(*prompt_), "") << "the oldest has gone";
}

TEST_F(PrefixIndexTest, SaysHowWellItPredicts) {
  index_.Apply(a_.id, Added(0, 1, *prompt_, 2));
  PrefixClaim claim;
  claim = PrefixClaim(&index_, a_, prompt_);
  EXPECT_EQ(claim.predicted_tokens(), 16);
  claim.Record(20);
  claim = PrefixClaim(&index_, b_, prompt_);
  claim.Record(0);
  EXPECT_EQ(Hits(*prompt_), "a=16 b=39");
  EXPECT_EQ(Hits(*Hashed(PromptFrom(500, 40))), "");
  const v1::PrefixIndexUse use = index_.Use();
  EXPECT_EQ(use.prompt_tokens(), 80u);
  EXPECT_EQ(use.predicted_tokens(), 16u);
  EXPECT_EQ(use.cached_tokens(), 20u);
  EXPECT_EQ(use.error_tokens(), 4u);
  EXPECT_EQ(use.lookups(), 2u);
  EXPECT_EQ(use.hits(), 1u);
}

// Hashes that come in the order of their prompts, 8,000 each.
TEST_F(PrefixIndexTest, MemoryIsBoundedAndTheOldestGoFirst) {
  constexpr size_t kLimit = 100'000;
  PrefixIndex small(kLimit);
  std::vector<std::shared_ptr<const PromptHashes>> prompts;
  for (uint64_t i = 0; i < 10; ++i) {
    prompts.push_back(Hashed(PromptFrom(static_cast<int32_t>(i) * 100'000, 8000)));
    for (const WorkerView* worker : {&a_, &b_}) {
      small.Apply(worker->id, Added(i, i + 1, *prompts.back(), 1000));
      EXPECT_LE(small.Use().bytes(), kLimit);
    }
  }
  EXPECT_EQ(small.Find(*prompts.back()).size(), 2u);
  EXPECT_EQ(small.Find(*prompts.front()).size(), 0u);
  EXPECT_GT(small.Use().forgotten(), 0u);
  EXPECT_EQ(small.Use().entries() + small.Use().forgotten(), small.Use().added());
  const uint64_t before = small.Use().entries();
  small.KeepOnly({.workers = {a_}});
  EXPECT_EQ(small.Use().entries(), before / 2);
}

TEST(AgingSetTest, WhatIsTouchedStays) {
  AgingSet set;
  set.SetMaxBytes(1024);
  std::vector<uint64_t> kept;
  for (uint64_t i = 0; i < 10; ++i) kept.push_back(i);
  for (const uint64_t hash : kept) set.Insert(hash);
  for (uint64_t i = 100; i < 1000; ++i) {
    set.Insert(i);
    set.Touch(kept);
    EXPECT_EQ(set.LongestPrefix(kept), kept.size());
    EXPECT_LE(set.bytes(), 1024u);
  }
  EXPECT_FALSE(set.Contains(100));
  EXPECT_TRUE(set.Contains(999));
}

TEST(AgingSetTest, ManyErasuresDoNotMakeItGrow) {
  AgingSet set;
  set.SetMaxBytes(4096);
  for (uint64_t i = 0; i < 20'000; ++i) {
    set.Insert(i);
    if (i >= 30) set.Erase(i - 30);
    ASSERT_LE(set.bytes(), 4096u);
  }
  EXPECT_EQ(set.size(), 30u);
  EXPECT_EQ(set.num_forgotten(), 0u);
}

// Multiples of a power of two and single bits, so that searches meet and gaps are closed.
TEST(AgingSetTest, HoldsWhatASetHoldsUntilItIsFull) {
  AgingSet set;
  set.SetMaxBytes(size_t{1} << 14);
  std::set<uint64_t> wanted;
  std::mt19937_64 random(1);
  for (int i = 0; i < 50'000; ++i) {
    const uint64_t drawn = random() % 600;
    const uint64_t hash = drawn < 63 ? uint64_t{1} << drawn : (drawn - 63) << 20;
    if (random() % 2 == 0 && wanted.size() < 500) {
      set.Insert(hash);
      wanted.insert(hash);
    } else {
      set.Erase(hash);
      wanted.erase(hash);
    }
    ASSERT_EQ(set.Contains(hash), wanted.contains(hash));
    ASSERT_EQ(set.size(), wanted.size());
    if (i % 500 > 0) continue;
    for (const uint64_t one : wanted) ASSERT_TRUE(set.Contains(one));
  }
  EXPECT_EQ(set.num_forgotten(), 0u);
}

TEST(AgingSetTest, ASmallerShareForgetsTheOldOnesFirst) {
  AgingSet set;
  set.SetMaxBytes(2048);  // generations of 80 hashes
  for (uint64_t i = 1; i <= 120; ++i) set.Insert(i);
  set.SetMaxBytes(1024);
  EXPECT_LE(set.bytes(), 1024u);
  EXPECT_FALSE(set.Contains(80)) << "an old one";
  EXPECT_TRUE(set.Contains(81)) << "a young one";
  EXPECT_EQ(set.size(), 40u);
  EXPECT_EQ(set.num_forgotten(), 80u);
  set.SetMaxBytes(512);
  EXPECT_EQ(set.size(), 0u) << "40 hashes are more than a generation of 20";
  EXPECT_EQ(set.num_forgotten(), 120u);
}

TEST(AgingSetTest, TooLittleMemoryForOneHashIsAnEmptySet) {
  AgingSet set;
  set.SetMaxBytes(10);
  set.Insert(1);
  EXPECT_FALSE(set.Contains(1));
  EXPECT_EQ(set.bytes(), 0u);
  EXPECT_EQ(set.num_forgotten(), 1u);
}

TEST(PromptHashesTest, AreMadeForTheSpacesOfTheWorkers) {
  ClusterView view;
  for (int32_t i = 0; i < 8; ++i) {
    view.workers.push_back(MakeCachingWorker("w" + std::to_string(i), v1::WORKER_ROLE_UNIFIED));
    ChangeInfo(view.workers.back(), [i](WorkerInfo& info) { info.prefix_root = i / 2; });
  }
  const std::vector<PrefixSpace> spaces = SpacesOf(view);
  ASSERT_EQ(spaces.size(), 3u) << "each once; root 0 means that nothing is cached";
  const auto hashed = HashPrompt(spaces, "", PromptFrom(1, 20));
  std::set<uint64_t> first;
  for (const PromptHashes::Chain& chain : hashed->chains) {
    EXPECT_EQ(chain.hashes.size(), 2u);
    first.insert(chain.hashes[0]);
  }
  EXPECT_EQ(first.size(), 3u);
  EXPECT_EQ(hashed->Find({.root = 1, .block_tokens = 16}), nullptr);
  for (int32_t i = 10; i < 20; ++i) {
    view.workers.push_back(view.workers[0]);
    ChangeInfo(view.workers.back(), [i](WorkerInfo& info) { info.prefix_root = i; });
  }
  EXPECT_EQ(SpacesOf(view).size(), kMostSpaces);
}

}  // namespace
}  // namespace tandem::prefix_index_test
