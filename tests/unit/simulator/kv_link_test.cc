#include "bench/simulator/kv_link.h"

#include <vector>

#include "gtest/gtest.h"

namespace tandem::simulator::kv_link_test {
namespace {

constexpr LinkModel kLink = {.bytes_per_second = 1e9};

// Runs everything; returns the milliseconds at which the transfers ended.
std::vector<double> EndsOf(Timeline& timeline, std::vector<double>& ends) {
  while (timeline.NextTime() < kNoDeadline) timeline.RunNext();
  return ends;
}

TEST(KvLinkTest, OneTransferTakesWhatThePrefillDoesNotHide) {
  Timeline timeline;
  KvLink link(timeline, kLink);
  std::vector<double> ends;
  link.Send({.bytes = 100'000'000, .operations = 1, .prefill = ModelTime(60), .units = 10},
            [&] { ends.push_back(ToMilliseconds(timeline.elapsed())); });
  ASSERT_EQ(EndsOf(timeline, ends).size(), 1U);
  EXPECT_NEAR(ends[0], 100 - 60 * 0.9, 1e-3);
}

TEST(KvLinkTest, TransfersShareTheLink) {
  Timeline timeline;
  LinkModel model = kLink;
  model.contention = {{.streams = 2, .total = 1.5}};
  KvLink link(timeline, model);
  std::vector<double> ends;
  const auto send = [&](int64_t bytes) {
    link.Send({.bytes = bytes, .operations = 1},
              [&] { ends.push_back(ToMilliseconds(timeline.elapsed())); });
  };
  send(100'000'000);
  send(25'000'000);
  ASSERT_EQ(EndsOf(timeline, ends).size(), 2U);
  // Each gets three quarters of what one gets alone, until the short one has ended.
  EXPECT_NEAR(ends[0], 25 / 0.75, 1e-3);
  EXPECT_NEAR(ends[1], ends[0] + 75, 1e-3);
}

}  // namespace
}  // namespace tandem::simulator::kv_link_test
