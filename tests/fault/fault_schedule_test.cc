#include "tests/fault/fault_schedule.h"

#include <algorithm>
#include <map>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(FaultScheduleTest, TheSameSeedDrawsTheSameEventsAndRequests) {
  const auto rows = AllRows(FaultSetup::kTcp);
  const auto one = MakeSchedule(7, 300, rows, 50);
  const auto two = MakeSchedule(7, 300, rows, 50);
  const auto other = MakeSchedule(8, 300, rows, 50);
  size_t different = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].row, two[i].row);
    EXPECT_EQ(one[i].seed, two[i].seed);
    EXPECT_EQ(one[i].request, two[i].request);
    different += one[i].row != other[i].row ? 1 : 0;
  }
  EXPECT_GT(different, one.size() / 2);
  const auto requests = DrawRequests(7, 20, 100);
  const auto same = DrawRequests(7, 20, 100);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].SerializeAsString(), same[i].SerializeAsString());
  }
}

TEST(FaultScheduleTest, EveryRowComesAsOftenAsTheOthersGiveOrTakeOne) {
  const auto rows = AllRows(FaultSetup::kTcp);
  std::map<FaultRow, size_t> counts;
  for (const FaultEvent& event : MakeSchedule(1, 500, rows, 10)) {
    ++counts[event.row];
    EXPECT_LT(event.request, 10u);
  }
  EXPECT_EQ(counts.size(), rows.size());
  for (const auto& [row, count] : counts) {
    EXPECT_GE(count, 500 / rows.size()) << Name(row);
    EXPECT_LE(count, 500 / rows.size() + 1) << Name(row);
  }
}

// tests/fault.cmake has the same numbers; FaultRun derives the seed and the share of TCP like this.
TEST(FaultScheduleTest, TheRunOfMakeTestContainsEveryKindOfFault) {
  constexpr size_t kEvents = 160;
  constexpr size_t kOverTcp = kEvents - 24 - 32 - 32;
  constexpr uint64_t kSeed = 5 * std::size(kFaultSetups);
  const auto kinds_of = [](auto&& rows, auto&& row_of) {
    std::set<FaultKind> kinds;
    for (const auto& item : rows) kinds.insert(row_of(item).kind);
    return kinds;
  };
  const auto rows = AllRows(FaultSetup::kTcp);
  const auto events = MakeSchedule(kSeed, kOverTcp, rows, 10);
  EXPECT_EQ(kinds_of(events, [](const FaultEvent& event) { return event.row; }),
            kinds_of(rows, [](const FaultRow& row) { return row; }));
}

TEST(FaultScheduleTest, RowsAreDistinctAndFramesAreSeenOnTcpAlone) {
  for (const FaultSetup setup : kFaultSetups) {
    const auto rows = AllRows(setup);
    EXPECT_EQ(std::set<FaultRow>(rows.begin(), rows.end()).size(), rows.size()) << Name(setup);
    for (const FaultRow& row : rows) {
      if (TransportOf(setup) == "tcp") continue;
      EXPECT_NE(row.target, FaultTarget::kFrame) << Name(row);
    }
  }
}

TEST(FaultScheduleTest, WhatIsLostMustBeResumedUnlessItMayHaveDoneItsPart) {
  for (const FaultKind kind : {FaultKind::kKill, FaultKind::kStop, FaultKind::kReplace}) {
    EXPECT_TRUE(MustResume({kind, FaultTarget::kDecode, Moment::kDecoding}));
    EXPECT_TRUE(MustResume({kind, FaultTarget::kUnified, Moment::kAccepted}));
    EXPECT_TRUE(MustResume({kind, FaultTarget::kPrefill, Moment::kQueued}));
    EXPECT_FALSE(MustResume({kind, FaultTarget::kPrefill, Moment::kDecoding})) << "all has come";
  }
  EXPECT_FALSE(MustResume({FaultKind::kPause, FaultTarget::kDecode, Moment::kDecoding}));
  EXPECT_FALSE(MustResume({FaultKind::kLeave, FaultTarget::kDecode, Moment::kDecoding}));
}

TEST(FaultScheduleTest, RequestsAreWithinTheirBounds) {
  for (const v1::GenerateRequest& request : DrawRequests(3, 200, 100)) {
    EXPECT_GE(request.token_ids().ids_size(), 1);
    EXPECT_LE(request.token_ids().ids_size(), 600);
    EXPECT_GE(request.n(), 1);
    EXPECT_LE(request.n(), 3);
    for (const int32_t id : request.token_ids().ids()) EXPECT_LT(id, 100);
  }
  const auto requests = DrawRequests(3, 24, 100);
  EXPECT_GE(std::ranges::count_if(requests, IsLong), 3);
}

}  // namespace
}  // namespace tandem
