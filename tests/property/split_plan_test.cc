// Random batches cut by the split rule: every unit of every pair is in exactly one piece, partial
// results are where the merge looks for them, parts are equal, and fixed cuts are the same in every
// batch.

#include "kernels/split_plan.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/split_pieces.h"

namespace tandem::split_plan_test {
namespace {

// Fresh every time, printed, and given back by TANDEM_SEED.
uint64_t Seed() {
  const char* const given = std::getenv("TANDEM_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

struct Batch {
  SplitRule rule;
  std::vector<int32_t> context_lens;
  std::vector<int64_t> starts;

  Batch(const SplitRule& rule_in, std::vector<int32_t> lens)
      : rule(rule_in), context_lens(std::move(lens)), starts(context_lens.size() + 1) {
    FillSplitStarts(rule, context_lens.data(), num_sequences(), starts.data());
  }

  int32_t num_sequences() const { return static_cast<int32_t>(context_lens.size()); }
  int32_t num_pairs() const { return num_sequences() * rule.num_kv_heads; }
  int64_t total_tokens() const {
    int64_t total = 0;
    for (int32_t len : context_lens) total += len;
    return total;
  }
  SplitLine line() const { return {starts.data(), context_lens.data(), num_sequences()}; }
  UnitRange Units(int32_t pair) const {
    return VisibleUnits(rule, context_lens[static_cast<size_t>(pair / rule.num_kv_heads)]);
  }

  std::vector<SplitPiece> PiecesOf(int32_t part_index) const {
    const SplitPart part = MakeSplitPart(rule, line(), part_index);
    SplitWalk walk(rule, line(), part_index, part);
    std::vector<SplitPiece> pieces;
    for (SplitPiece piece; walk.Next(&piece);) pieces.push_back(piece);
    return pieces;
  }
};

// All pieces of a pair, in the order of the parts.
std::map<int32_t, std::vector<SplitPiece>> PiecesByPair(const Batch& batch) {
  std::map<int32_t, std::vector<SplitPiece>> pieces;
  for (int32_t part = 0; part < batch.rule.num_parts; ++part) {
    for (const SplitPiece& piece : batch.PiecesOf(part)) {
      pieces[piece.seq * batch.rule.num_kv_heads + piece.kv_head].push_back(piece);
    }
  }
  return pieces;
}

// The pieces of each pair follow each other without gap from its first unit to its last.
void ExpectCoveredOnce(const Batch& batch) {
  const auto by_pair = PiecesByPair(batch);
  ASSERT_EQ(by_pair.size(), static_cast<size_t>(batch.num_pairs()));
  for (const auto& [pair, pieces] : by_pair) {
    const UnitRange units = batch.Units(pair);
    int32_t next = units.begin;
    for (const SplitPiece& piece : pieces) {
      ASSERT_EQ(piece.unit_begin, next) << "pair " << pair;
      ASSERT_GT(piece.unit_end, piece.unit_begin) << "pair " << pair;
      ASSERT_EQ(piece.context_len, batch.context_lens[static_cast<size_t>(piece.seq)]);
      next = piece.unit_end;
    }
    ASSERT_EQ(next, units.end) << "pair " << pair;
  }
}

// The merge finds the slot of each piece in the order of the keys, no two pieces share one, and all
// are inside the memory that was asked for.
void ExpectSlotsFound(const Batch& batch) {
  std::set<int32_t> used;
  for (const auto& [pair, pieces] : PiecesByPair(batch)) {
    const PairPartials partials = PartialsOfPair(batch.rule, batch.line(), pair);
    ASSERT_EQ(static_cast<size_t>(partials.count), pieces.size()) << "pair " << pair;
    if (partials.count == 1) {
      ASSERT_EQ(pieces[0].slot, -1) << "pair " << pair;
      continue;
    }
    for (int32_t k = 0; k < partials.count; ++k) {
      const int32_t slot = pieces[static_cast<size_t>(k)].slot;
      ASSERT_EQ(slot, partials.Slot(k)) << "pair " << pair << " piece " << k;
      ASSERT_TRUE(used.insert(slot).second) << "slot " << slot << " twice";
      ASSERT_GE(slot, 0);
      ASSERT_LT(slot, MaxSplitSlots(batch.rule, batch.num_sequences(), batch.total_tokens()));
    }
  }
}

// Cost that a part really has: its units, and a pair's cost for each pair that it takes part in.
int64_t CostOf(const Batch& batch, const std::vector<SplitPiece>& pieces) {
  int64_t cost = 0;
  for (const SplitPiece& piece : pieces) {
    cost += batch.rule.pair_cost + piece.unit_end - piece.unit_begin;
  }
  return cost;
}

void ExpectFewPartials(const Batch& batch) {
  for (int32_t part = 0; part < batch.rule.num_parts; ++part) {
    int partials = 0;
    for (const SplitPiece& piece : batch.PiecesOf(part)) partials += piece.slot >= 0 ? 1 : 0;
    ASSERT_LE(partials, 2) << "part " << part;
  }
}

// No part is more than 5% away from its payload, but for the last ones, which have what is left;
// where there is so much work that what a cut pair costs twice is below that.
void ExpectBalanced(const Batch& batch) {
  const int64_t payload = SplitPayload(batch.rule, batch.line().total());
  if (payload < 20 * batch.rule.pair_cost) return;
  for (int32_t part = 0; part < batch.rule.num_parts; ++part) {
    const int64_t cost = CostOf(batch, batch.PiecesOf(part));
    ASSERT_LE(20 * cost, 21 * payload) << "part " << part << " of " << batch.rule.num_parts;
    if ((part + 1) * payload > batch.line().total()) continue;
    ASSERT_GE(20 * cost, 19 * payload) << "part " << part << " of " << batch.rule.num_parts;
  }
}

class SplitPlanTest : public testing::Test {
 protected:
  SplitPlanTest() {
    std::printf("TANDEM_SEED=%llu\n", static_cast<unsigned long long>(seed_));
    RecordProperty("seed", std::to_string(seed_));
  }

  int32_t Draw(int32_t min, int32_t max) {
    return std::uniform_int_distribution<int32_t>(min, max)(random_);
  }

  SplitRule RandomRule(SplitMode mode) {
    const int32_t parts[] = {1, 2, 7, 108, 132, 264, 400};
    const int32_t window = Draw(0, 2) == 0 ? Draw(1, 3000) : 0;
    return MakeSplitRule(mode, Draw(1, 9), parts[Draw(0, 6)], window);
  }

  // Lengths near the edges of units, and far apart from each other.
  int32_t RandomLength() {
    switch (Draw(0, 4)) {
      case 0:
        return Draw(0, 2);
      case 1:
        return std::max(0, 64 * Draw(0, 40) + Draw(-1, 1));
      case 2:
        return Draw(1, 600);
      case 3:
        return Draw(1, 8000);
      default:
        return Draw(1, 1 << Draw(1, 16));
    }
  }

  std::vector<int32_t> RandomLengths(int32_t count) {
    std::vector<int32_t> lens;
    for (int32_t i = 0; i < count; ++i) lens.push_back(RandomLength());
    return lens;
  }

  Batch RandomBatch(SplitMode mode) {
    return Batch(RandomRule(mode), RandomLengths(1 << Draw(0, 6)));
  }

  uint64_t seed_ = Seed();
  std::mt19937_64 random_{seed_};
};

TEST_F(SplitPlanTest, EveryUnitIsInOnePieceAndEveryPieceIsMerged) {
  for (int round = 0; round < 2000; ++round) {
    const Batch batch = RandomBatch(round % 4 == 0 ? SplitMode::kFixed : SplitMode::kBalanced);
    ASSERT_NO_FATAL_FAILURE(ExpectCoveredOnce(batch)) << "round " << round;
    ASSERT_NO_FATAL_FAILURE(ExpectSlotsFound(batch)) << "round " << round;
  }
}

TEST_F(SplitPlanTest, BalancedPartsAreEqualAndLeaveAtMostTwoPartialResults) {
  int balanced = 0;
  for (int round = 0; round < 1000; ++round) {
    const Batch batch = RandomBatch(SplitMode::kBalanced);
    ASSERT_NO_FATAL_FAILURE(ExpectFewPartials(batch)) << "round " << round;
    ASSERT_NO_FATAL_FAILURE(ExpectBalanced(batch)) << "round " << round;
    if (SplitPayload(batch.rule, batch.line().total()) >= 20 * batch.rule.pair_cost) ++balanced;
  }
  EXPECT_GT(balanced, 100) << "hardly any batch had enough work to say anything";
}

TEST_F(SplitPlanTest, OneLongContextAmongShortOnesIsSpread) {
  std::vector<int32_t> lens(64, 512);
  lens[17] = 32768;
  const Batch batch(MakeSplitRule(SplitMode::kBalanced, 8, 132, 0), lens);
  ASSERT_NO_FATAL_FAILURE(ExpectCoveredOnce(batch));
  ASSERT_NO_FATAL_FAILURE(ExpectSlotsFound(batch));
  ASSERT_NO_FATAL_FAILURE(ExpectFewPartials(batch));
  ASSERT_GE(SplitPayload(batch.rule, batch.line().total()), 20 * batch.rule.pair_cost);
  ASSERT_NO_FATAL_FAILURE(ExpectBalanced(batch));
}

TEST_F(SplitPlanTest, FixedCutsDoNotDependOnTheBatch) {
  for (int round = 0; round < 300; ++round) {
    const SplitRule rule = RandomRule(SplitMode::kFixed);
    const int32_t length = RandomLength();
    const auto pieces_alone = PiecesByPair(Batch(rule, {length}));
    std::vector<int32_t> lens = RandomLengths(Draw(1, 20));
    const int32_t place = Draw(0, static_cast<int32_t>(lens.size()));
    lens.insert(lens.begin() + place, length);
    const auto pieces = PiecesByPair(Batch(rule, lens));
    for (int32_t head = 0; head < rule.num_kv_heads; ++head) {
      const auto& alone = pieces_alone.at(head);
      const auto& among = pieces.at(place * rule.num_kv_heads + head);
      ASSERT_EQ(alone.size(), among.size());
      for (size_t i = 0; i < alone.size(); ++i) {
        ASSERT_EQ(alone[i].unit_begin, among[i].unit_begin);
        ASSERT_EQ(alone[i].unit_end, alone[i].unit_begin + 1);
        ASSERT_EQ(alone[i].unit_end, among[i].unit_end);
        ASSERT_EQ(alone[i].slot < 0, among[i].slot < 0);
      }
    }
  }
}

TEST_F(SplitPlanTest, UnitsHoldWhatTheLastTokenSees) {
  for (int round = 0; round < 2000; ++round) {
    const SplitRule rule = RandomRule(SplitMode::kBalanced);
    const int32_t length = RandomLength();
    const UnitRange units = VisibleUnits(rule, length);
    if (length == 0) {
      ASSERT_EQ(units.size(), 1);
      continue;
    }
    const int32_t first = rule.window > 0 ? std::max(0, length - rule.window) : 0;
    ASSERT_LE(units.begin * rule.unit_tokens, first);
    ASSERT_GT((units.begin + 1) * rule.unit_tokens, first);
    ASSERT_LT((units.end - 1) * rule.unit_tokens, length);
    ASSERT_GE(units.end * rule.unit_tokens, length);
  }
}

}  // namespace
}  // namespace tandem::split_plan_test
