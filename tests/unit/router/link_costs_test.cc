#include "router/policy/link_costs.h"

#include <functional>

#include "gtest/gtest.h"
#include "tests/support/measured_workers.h"

namespace tandem::link_costs_test {
namespace {

class LinkCostsTest : public testing::Test {
 protected:
  LinkCostsTest() { SetLink(prefill_, "d0", 2); }

  void ChangeLink(int index, const std::function<void(v1::LinkStatus&)>& change) {
    ChangeLoad(prefill_, [&](v1::WorkerLoad& load) { change(*load.mutable_links(index)); });
  }
  // Another link to d0, over which nothing went yet.
  void AddFasterLink() {
    ChangeLoad(prefill_, [](v1::WorkerLoad& load) {
      v1::LinkStatus& faster = *load.add_links();
      faster = load.links(0);
      faster.set_probe_gb_per_s(10);
      faster.set_in_use(false);
    });
  }
  double GigabytesPerSecond() const { return LinksOf(prefill_).at("d0").bytes_per_second / 1e9; }

  WorkerView prefill_ = MeasuredWorker("p0", v1::WORKER_ROLE_PREFILL);
};

TEST_F(LinkCostsTest, WhatALinkCarriedOfLateCountsMoreThanItsProbe) {
  EXPECT_EQ(GigabytesPerSecond(), 2);
  ChangeLink(0, [](v1::LinkStatus& link) { link.set_gb_per_s(1.5); });
  EXPECT_EQ(GigabytesPerSecond(), 1.5);
}

TEST_F(LinkCostsTest, EncodedKvGoesFasterThanTheBytesOfTheLink) {
  ChangeLink(0, [](v1::LinkStatus& link) { link.set_kv_ratio(1.5); });
  EXPECT_EQ(GigabytesPerSecond(), 3);
}

TEST_F(LinkCostsTest, TheLinkInUseCountsAndElseTheFastest) {
  AddFasterLink();
  EXPECT_EQ(GigabytesPerSecond(), 2);
  ChangeLink(0, [](v1::LinkStatus& link) { link.set_in_use(false); });
  EXPECT_EQ(GigabytesPerSecond(), 10);
}

TEST_F(LinkCostsTest, ALinkThatFailedOrCannotBeReachedDoesNotCount) {
  AddFasterLink();
  ChangeLink(0, [](v1::LinkStatus& link) { link.set_failure("connection refused"); });
  EXPECT_EQ(GigabytesPerSecond(), 10);
  ChangeLink(1, [](v1::LinkStatus& link) { link.set_unreachable("another host"); });
  EXPECT_TRUE(LinksOf(prefill_).empty());
}

TEST_F(LinkCostsTest, ALinkThatWasNotMeasuredDoesNotCount) {
  ChangeLink(0, [](v1::LinkStatus& link) { link.set_probe_gb_per_s(0); });
  EXPECT_TRUE(LinksOf(prefill_).empty());
}

TEST_F(LinkCostsTest, TheShapeOfKvFollowsFromTheLayoutUnlessThatIsImpossible) {
  const auto kv = KvOf(prefill_);
  ASSERT_TRUE(kv.has_value());
  EXPECT_EQ(kv->bytes_per_token, 2 * 10 * 5 * 5 * 2);
  EXPECT_EQ(kv->layers, 10);
  ChangeInfo(prefill_, [](WorkerInfo& info) {
    info.layout.set_dtype("k4v3");
    info.layout.set_head_dim(128);
  });
  EXPECT_EQ(KvOf(prefill_)->bytes_per_token, 10 * 5 * 2 * (34 + 26));
  ChangeInfo(prefill_, [](WorkerInfo& info) { info.layout.set_num_layers(1 << 20); });
  EXPECT_FALSE(KvOf(prefill_).has_value());
}

}  // namespace
}  // namespace tandem::link_costs_test
