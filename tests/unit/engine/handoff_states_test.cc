// The tables of the hand-off: what docs/hand_off.md shows is what the code does, every state can be
// left, and every hand-off can end from every state.

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "engine/handoff/states.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/tree.h"

namespace tandem::handoff_states_test {
namespace {

using Row = std::tuple<std::string, std::string, std::string>;

template <typename Table>
std::set<Row> RowsOf(const Table& table) {
  std::set<Row> rows;
  for (const auto& one : table) {
    rows.emplace(Name(one.from), Name(one.event), Name(one.to));
  }
  return rows;
}

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// The first three columns of the table below the heading `heading`.
std::set<Row> RowsInTheDoc(const std::string& heading) {
  std::ifstream doc(TreePath("docs/hand_off.md"));
  EXPECT_TRUE(doc.good());
  std::set<Row> rows;
  bool here = false;
  for (std::string line; std::getline(doc, line);) {
    if (line.starts_with("## ")) here = line == "## " + heading;
    if (!here || !line.starts_with("| ") || line.starts_with("| state ")) continue;
    std::vector<std::string> cells;
    std::stringstream cut(line.substr(1));
    for (std::string cell; std::getline(cut, cell, '|');) cells.push_back(Trimmed(cell));
    if (cells.size() < 3) {
      ADD_FAILURE() << line;
    } else {
      EXPECT_TRUE(rows.emplace(cells[0], cells[1], cells[2]).second) << "twice: " << line;
    }
  }
  return rows;
}

TEST(HandoffStatesTest, TheDocShowsTheTableOfTheSender) {
  EXPECT_THAT(RowsInTheDoc("The sender"), testing::ContainerEq(RowsOf(kSendTransitions)));
}

TEST(HandoffStatesTest, TheDocShowsTheTableOfTheReceiver) {
  EXPECT_THAT(RowsInTheDoc("The receiver"), testing::ContainerEq(RowsOf(kReceiveTransitions)));
}

TEST(HandoffStatesTest, AnEventLeadsToOnePlace) {
  std::set<std::pair<SendState, SendEvent>> send;
  for (const SendTransition& one : kSendTransitions) {
    EXPECT_TRUE(send.emplace(one.from, one.event).second) << Name(one.from) << Name(one.event);
  }
  std::set<std::pair<ReceiveState, ReceiveEvent>> receive;
  for (const ReceiveTransition& one : kReceiveTransitions) {
    EXPECT_TRUE(receive.emplace(one.from, one.event).second) << Name(one.from) << Name(one.event);
  }
}

// A request ends in whatever state its hand-off is, and a worker stops in whatever state its
// reservations are.
TEST(HandoffStatesTest, EveryStateCanBeEnded) {
  for (const SendTransition& one : kSendTransitions) {
    EXPECT_EQ(After(one.to, SendEvent::kAbort), SendState::kEnded) << Name(one.to);
  }
  for (const ReceiveTransition& one : kReceiveTransitions) {
    if (one.to == ReceiveState::kGone) continue;
    EXPECT_EQ(After(one.to, ReceiveEvent::kShutDown), ReceiveState::kGone) << Name(one.to);
  }
  EXPECT_EQ(After(ReceiveState::kWaiting, ReceiveEvent::kReject), ReceiveState::kGone);
}

TEST(HandoffStatesTest, KvThatIsNotCompleteIsNeverTaken) {
  for (const ReceiveTransition& one : kReceiveTransitions) {
    EXPECT_TRUE(one.event != ReceiveEvent::kTake || one.from == ReceiveState::kComplete);
    EXPECT_TRUE(one.to != ReceiveState::kComplete || one.event == ReceiveEvent::kComplete);
  }
}

TEST(HandoffStatesDeathTest, WhatCannotComeIsABug) {
  SendState closed = SendState::kClosed;
  EXPECT_DEATH(Advance(closed, SendEvent::kAcknowledged), "");
  ReceiveState awaited = ReceiveState::kAwaited;
  EXPECT_DEATH(Advance(awaited, ReceiveEvent::kTake), "");
}

}  // namespace
}  // namespace tandem::handoff_states_test
