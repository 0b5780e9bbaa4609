// Every state of both machines has its faults, and docs/faults.md shows which.

#include "tests/fault/fault_table.h"

#include <fstream>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/tree.h"

namespace tandem {
namespace {

std::set<FaultKind> KindsAt(const std::vector<Moment>& moments) {
  std::set<FaultKind> kinds;
  for (const Moment moment : moments) {
    for (const FaultRow& row : RowsAt(moment)) kinds.insert(row.kind);
  }
  return kinds;
}

template <typename State>
std::vector<Moment> MomentsOf(State state, std::vector<State> StatesAtMoment::*machine) {
  std::vector<Moment> moments;
  for (const Moment moment : kMoments) {
    const StatesAtMoment states = StatesAt(moment);
    for (const State one : states.*machine) {
      if (one == state) moments.push_back(moment);
    }
  }
  return moments;
}

void ExpectAllKinds(const std::vector<Moment>& moments, std::string_view state) {
  EXPECT_THAT(KindsAt(moments),
              testing::IsSupersetOf({FaultKind::kKill, FaultKind::kPause, FaultKind::kStop,
                                     FaultKind::kLeave, FaultKind::kCancel, FaultKind::kDeadline}))
      << state;
}

// `closed` is left in the message that it is entered in; docs/faults.md says so.
TEST(FaultTableTest, EveryStateOfTheSenderIsDisturbed) {
  std::set<SendState> states;
  for (const SendTransition& one : kSendTransitions) states.insert(one.to);
  EXPECT_EQ(states.size(), 4u);
  for (const SendState state : states) {
    ExpectAllKinds(MomentsOf(state, &StatesAtMoment::sender), Name(state));
  }
}

// `broken` is out of reach of what happens to frames; docs/faults.md says why.
TEST(FaultTableTest, EveryStateOfTheReceiverIsDisturbed) {
  std::set<ReceiveState> states = {ReceiveState::kWaiting};
  for (const ReceiveTransition& one : kReceiveTransitions) states.insert(one.to);
  EXPECT_EQ(states.erase(ReceiveState::kBroken), 1u);
  EXPECT_EQ(states.size(), 5u);
  for (const ReceiveState state : states) {
    ExpectAllKinds(MomentsOf(state, &StatesAtMoment::receiver), Name(state));
  }
}

TEST(FaultTableTest, EveryMomentOfASetupIsInTheTable) {
  const std::set<Moment> known(std::begin(kMoments), std::end(kMoments));
  EXPECT_EQ(known.size(), std::size(kMoments));
  for (const FaultSetup setup : kFaultSetups) {
    for (const FaultRow& row : AllRows(setup)) EXPECT_TRUE(known.contains(row.moment)) << Name(row);
  }
}

TEST(FaultTableTest, TheDocShowsIt) {
  std::ifstream doc(TreePath("docs/faults.md"));
  std::vector<std::string> shown;
  bool here = false;
  for (std::string line; std::getline(doc, line);) {
    if (line.starts_with("## ")) here = line == "## Which states are disturbed";
    if (here && line.starts_with("| ") && !line.starts_with("| moment ")) shown.push_back(line);
  }
  std::vector<std::string> lines;
  for (const Moment moment : kMoments) lines.push_back(TableLine(moment));
  EXPECT_THAT(shown, testing::ElementsAreArray(lines));
}

}  // namespace
}  // namespace tandem
