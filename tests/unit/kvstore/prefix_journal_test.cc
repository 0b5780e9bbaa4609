#include "kvstore/prefix_journal.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::prefix_journal_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(PrefixJournalTest, AReaderGetsEachChangeOnce) {
  PrefixJournal journal;
  PrefixReader reader(journal);
  journal.Add(10);
  journal.Add(11);
  const PrefixChanges first = reader.Next(0, 100);
  EXPECT_EQ(first.since, 0u);
  EXPECT_THAT(first.added, ElementsAre(10, 11));
  journal.Remove(10);
  const PrefixChanges second = reader.Next(first.sequence, 100);
  EXPECT_EQ(second.since, first.sequence);
  EXPECT_THAT(second.added, IsEmpty());
  EXPECT_THAT(second.removed, ElementsAre(10));
  const PrefixChanges third = reader.Next(second.sequence, 100);
  EXPECT_THAT(third.added, IsEmpty());
  EXPECT_THAT(third.removed, IsEmpty());
}

TEST(PrefixJournalTest, AReportThatWasNotConfirmedIsRepeatedWithTheChangesSince) {
  PrefixJournal journal;
  PrefixReader reader(journal);
  journal.Add(10);
  const uint64_t known = reader.Next(0, 100).sequence;
  journal.Add(11);
  EXPECT_THAT(reader.Next(known, 100).added, ElementsAre(11));
  journal.Add(12);
  journal.Remove(11);
  const PrefixChanges again = reader.Next(known, 100);
  EXPECT_EQ(again.since, known);
  EXPECT_THAT(again.added, ElementsAre(12));
  EXPECT_THAT(again.removed, ElementsAre(11));
}

TEST(PrefixJournalTest, PiecesAreBoundedAndSayThatMoreFollows) {
  PrefixJournal journal;
  PrefixReader reader(journal);
  for (uint64_t hash = 0; hash < 10; ++hash) journal.Add(hash);
  const PrefixChanges first = reader.Next(0, 4);
  EXPECT_THAT(first.added, ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(first.more);
  journal.Remove(2);
  journal.Remove(5);
  const PrefixChanges second = reader.Next(first.sequence, 6);
  EXPECT_THAT(second.added, ElementsAre(4, 6, 7, 8, 9));
  EXPECT_THAT(second.removed, ElementsAre(2)) << "which this reader has";
  EXPECT_TRUE(second.more);
  EXPECT_FALSE(reader.Next(second.sequence, 6).more);
}

TEST(PrefixJournalTest, AReaderThatMissedAForgottenRemovalBeginsFromScratch) {
  PrefixJournal journal(/*most_removed=*/2);
  PrefixReader reader(journal);
  for (uint64_t hash = 0; hash < 5; ++hash) journal.Add(hash);
  const uint64_t known = reader.Next(0, 100).sequence;
  for (uint64_t hash = 0; hash < 3; ++hash) journal.Remove(hash);
  const PrefixChanges afresh = reader.Next(known, 100);
  EXPECT_EQ(afresh.since, 0u);
  EXPECT_THAT(afresh.added, UnorderedElementsAre(3, 4));
  EXPECT_THAT(afresh.removed, IsEmpty());
}

TEST(PrefixJournalTest, ADescriptionInPiecesNeedsNoRemovalFromBeforeIt) {
  PrefixJournal journal(/*most_removed=*/1);
  PrefixReader reader(journal);
  for (uint64_t hash = 0; hash < 8; ++hash) journal.Add(hash);
  for (uint64_t hash = 5; hash < 8; ++hash) journal.Remove(hash);
  PrefixChanges piece = reader.Next(0, 2);
  for (const uint64_t expected : {2, 4}) {
    piece = reader.Next(piece.sequence, 2);
    EXPECT_NE(piece.since, 0u) << "it would never end";
    EXPECT_EQ(piece.added.at(0), expected);
  }
  EXPECT_FALSE(piece.more);
}

TEST(PrefixJournalTest, ARouterThatKnowsNothingOrSomethingElseIsToldEverything) {
  PrefixJournal journal;
  PrefixReader reader(journal);
  journal.Add(1);
  const uint64_t first = reader.Next(0, 100).sequence;
  const uint64_t second = reader.Next(first, 100).sequence;
  reader.Next(second, 100);
  for (const uint64_t confirmed : {uint64_t{0}, first, uint64_t{12345}}) {
    const PrefixChanges all = reader.Next(confirmed, 100);
    EXPECT_EQ(all.since, 0u) << confirmed;
    EXPECT_THAT(all.added, ElementsAre(1));
    reader.Next(all.sequence, 100);
  }
}

}  // namespace
}  // namespace tandem::prefix_journal_test
