#include "bench/serving/goodput.h"

#include <string>

#include "bench/serving/rate_search.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::loadgen::goodput_test {
namespace {

using ::testing::HasSubstr;

TEST(ObjectivesTest, EveryNameMayBeGivenOnce) {
  const auto objectives = ParseObjectives({"ttft:200", "tpot:50.5", "e2el:3000"});
  ASSERT_TRUE(objectives.ok()) << objectives.status();
  EXPECT_EQ(objectives->ttft, 200);
  EXPECT_EQ(objectives->tpot, 50.5);
  EXPECT_EQ(objectives->e2e, 3000);
  EXPECT_FALSE(ParseObjectives({})->any());
}

TEST(ObjectivesTest, WhatIsNoObjectiveIsRefusedWithItsText) {
  for (const std::string word : {"ttft:0", "ttft:-1", "tpot:nan", "tpot:inf", "ttft",
                                 "ttft:", "ttft:fast", "latency:5", ":5", ""}) {
    const auto objectives = ParseObjectives({word});
    ASSERT_FALSE(objectives.ok()) << word;
    EXPECT_THAT(std::string(objectives.status().message()), HasSubstr("--goodput " + word));
  }
  EXPECT_THAT(std::string(ParseObjectives({"ttft:1", "ttft:2"}).status().message()),
              HasSubstr("twice"));
}

// What a search finds when exactly the rates up to `capacity` hold.
RateSearch Searched(double capacity, const RateSearchOptions& options, int* probes = nullptr) {
  RateSearch search(options);
  while (const auto rate = search.Next()) {
    if (probes != nullptr) ++*probes;
    search.Report(*rate <= capacity);
  }
  return search;
}

TEST(RateSearchTest, TheHighestRateIsFoundFromAboveAndFromBelow) {
  for (const double capacity : {0.3, 1.0, 7.7, 500.0}) {
    for (const double start : {0.1, 1.0, 64.0}) {
      int probes = 0;
      const RateSearch search =
          Searched(capacity, {.start_rate = start, .tolerance = 0.05, .max_probes = 40}, &probes);
      ASSERT_TRUE(search.best()) << capacity << " from " << start;
      EXPECT_LE(*search.best(), capacity);
      EXPECT_GE(*search.best() * 1.05, capacity * 0.999999) << capacity << " from " << start;
      EXPECT_LE(probes, 20);
    }
  }
}

TEST(RateSearchTest, ASearchEndsAfterItsProbes) {
  int probes = 0;
  EXPECT_FALSE(Searched(1e-9, {.start_rate = 64, .max_probes = 6}, &probes).best());
  EXPECT_EQ(probes, 6);
}

}  // namespace
}  // namespace tandem::loadgen::goodput_test
