#pragma once

#include <cstdint>

#include "kernels/op_args.h"

#if defined(__CUDACC__)
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif

// How the contexts of a decode step are cut into equal parts of work: one rule for the planner on
// the device, the CPU backend and the tests.
//
// A pair is a sequence and one of its KV heads; pairs are ordered by sequence, then by head. A unit
// is `unit_tokens` keys of a pair, aligned to absolute positions. All pairs lie one behind the
// other on a line of cost, each as `pair_cost` and then 1 for each of its units that are seen; part
// i gets the units in [i * payload, (i + 1) * payload) of the line. So a part is a run of units, a
// part cuts at most the first and the last of its pairs, and what lies between it has to itself.
//
// A piece is a run of units of one pair that is computed in one go. A pair that is a single piece
// writes its output at once; the others leave one partial result per piece, in the piece's slot,
// and the partial results of a pair are merged in the order of the keys.
// Source: the tile scheduler of FlashMLA (DeepSeek, 2025), with a parallel search for its loop.

namespace tandem {

struct SplitRule {
  // kBalanced: a piece is as long as its part allows. kFixed: each unit is a piece, so that the
  // cuts are the same in every batch.
  SplitMode mode = SplitMode::kBalanced;
  int32_t unit_tokens = 0;
  int32_t pair_cost = 0;  // of beginning and ending a pair, in units
  int32_t num_kv_heads = 0;
  int32_t num_parts = 0;
  int32_t window = 0;  // 0: all keys are seen
};

// The keys of a unit in each SplitMode, and the cost of a pair in kBalanced.
inline constexpr int32_t kBalancedUnitTokens = 64;
inline constexpr int32_t kFixedUnitTokens = 512;
inline constexpr int32_t kBalancedPairCost = 2;

TANDEM_HOST_DEVICE inline SplitRule MakeSplitRule(SplitMode mode, int32_t num_kv_heads,
                                                  int32_t num_parts, int32_t window) {
  const bool fixed = mode == SplitMode::kFixed;
  SplitRule rule;
  rule.mode = mode;
  rule.unit_tokens = fixed ? kFixedUnitTokens : kBalancedUnitTokens;
  rule.pair_cost = fixed ? 0 : kBalancedPairCost;
  rule.num_kv_heads = num_kv_heads;
  rule.num_parts = num_parts;
  rule.window = window;
  return rule;
}

// Units [begin, end) of a context.
struct UnitRange {
  int32_t begin;
  int32_t end;

  TANDEM_HOST_DEVICE int32_t size() const { return end - begin; }
};

// Keys [begin, end) that the last token of a context sees.
struct KeyRange {
  int32_t begin;
  int32_t end;
};

TANDEM_HOST_DEVICE inline KeyRange VisibleKeys(const SplitRule& rule, int32_t context_len) {
  const bool cut = rule.window > 0 && context_len > rule.window;
  return {cut ? context_len - rule.window : 0, context_len};
}

// The units that hold the visible keys. An empty context has one unit, with nothing in it, so that
// some part writes its output.
TANDEM_HOST_DEVICE inline UnitRange VisibleUnits(const SplitRule& rule, int32_t context_len) {
  if (context_len <= 0) return {0, 1};
  const KeyRange keys = VisibleKeys(rule, context_len);
  return {keys.begin / rule.unit_tokens, (keys.end - 1) / rule.unit_tokens + 1};
}

// The cost of all pairs of a sequence, in units.
TANDEM_HOST_DEVICE inline int64_t SequenceCost(const SplitRule& rule, int32_t context_len) {
  return int64_t{rule.num_kv_heads} * (rule.pair_cost + VisibleUnits(rule, context_len).size());
}

// The line of cost of a step: sequence s begins at starts[s], and the line ends at
// starts[num_sequences].
struct SplitLine {
  const int64_t* starts;        // [num_sequences + 1], strictly rising from 0
  const int32_t* context_lens;  // [num_sequences]
  int32_t num_sequences;

  TANDEM_HOST_DEVICE int64_t total() const { return starts[num_sequences]; }
};

// Fills the line's `starts`, one sequence after the other.
inline void FillSplitStarts(const SplitRule& rule, const int32_t* context_lens,
                            int32_t num_sequences, int64_t* starts) {
  starts[0] = 0;
  for (int32_t s = 0; s < num_sequences; ++s) {
    starts[s + 1] = starts[s] + SequenceCost(rule, context_lens[s]);
  }
}

// The cost of each part; the last parts may have less.
TANDEM_HOST_DEVICE inline int64_t SplitPayload(const SplitRule& rule, int64_t total) {
  const int64_t payload = (total + rule.num_parts - 1) / rule.num_parts;
  return payload > 0 ? payload : 1;
}

// The work of one part: the pairs [first_pair, first_pair + num_pairs), of the first one from
// unit_begin on, of the last one up to unit_end. A pair is sequence * num_kv_heads + kv_head.
// Aligned, so that a device reads it in one load.
struct alignas(16) SplitPart {
  int32_t first_pair;
  int32_t num_pairs;  // 0: nothing
  int32_t unit_begin;
  int32_t unit_end;
};

// A position on the line of cost: a pair, and its unit counted from the first that is seen;
// negative inside the pair's own cost.
struct SplitPoint {
  int32_t pair;
  int32_t unit;
};

TANDEM_HOST_DEVICE inline SplitPoint LocateOnLine(const SplitRule& rule, const SplitLine& line,
                                                  int64_t position) {
  int32_t low = 0;
  int32_t high = line.num_sequences;  // starts[low] <= position < starts[high]
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    if (line.starts[middle] <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t offset = position - line.starts[low];
  const int64_t pair_cost = (line.starts[low + 1] - line.starts[low]) / rule.num_kv_heads;
  const int64_t head = offset / pair_cost;
  return {static_cast<int32_t>(low * rule.num_kv_heads + head),
          static_cast<int32_t>(offset - head * pair_cost) - rule.pair_cost};
}

TANDEM_HOST_DEVICE inline SplitPart MakeSplitPart(const SplitRule& rule, const SplitLine& line,
                                                  int32_t part) {
  const int64_t payload = SplitPayload(rule, line.total());
  const int64_t begin = part * payload;
  const int64_t end = begin + payload < line.total() ? begin + payload : line.total();
  if (begin >= end) return {0, 0, 0, 0};
  const SplitPoint first = LocateOnLine(rule, line, begin);
  SplitPoint last = LocateOnLine(rule, line, end - 1);
  const bool ends_before = last.unit < 0;  // with the pair before last.pair
  if (ends_before) --last.pair;
  if (last.pair < first.pair) return {0, 0, 0, 0};
  const UnitRange first_units =
      VisibleUnits(rule, line.context_lens[first.pair / rule.num_kv_heads]);
  const UnitRange last_units = VisibleUnits(rule, line.context_lens[last.pair / rule.num_kv_heads]);
  return {first.pair, last.pair - first.pair + 1,
          first_units.begin + (first.unit > 0 ? first.unit : 0),
          ends_before ? last_units.end : last_units.begin + last.unit + 1};
}

// The partial results of a pair, in the order of the keys.
struct PairPartials {
  int32_t count;       // 1: there are none, the pair is one piece
  int32_t first_slot;  // the slot of the first partial result
  int32_t later_slot;  // slot of the k-th after the first: later_slot + k

  TANDEM_HOST_DEVICE int32_t Slot(int32_t k) const { return k == 0 ? first_slot : later_slot + k; }
};

// In kBalanced, part i has slot i for a piece of a pair that an earlier part began, and slot
// num_parts + i for one of a pair that a later part continues. In kFixed a unit's slot is its place
// on the line of cost.
TANDEM_HOST_DEVICE inline PairPartials PartialsOfPair(const SplitRule& rule, const SplitLine& line,
                                                      int32_t pair) {
  const int32_t seq = pair / rule.num_kv_heads;
  const int64_t total = line.total();  // all loads first, so that a device overlaps them
  const int64_t start = line.starts[seq];
  const int32_t units = VisibleUnits(rule, line.context_lens[seq]).size();
  const int64_t first_unit =
      start + int64_t{pair % rule.num_kv_heads} * (rule.pair_cost + units) + rule.pair_cost;
  if (rule.mode == SplitMode::kFixed) {
    return {units, static_cast<int32_t>(first_unit), static_cast<int32_t>(first_unit)};
  }
  const int64_t payload = SplitPayload(rule, total);
  const auto first = static_cast<int32_t>(first_unit / payload);
  const auto last = static_cast<int32_t>((first_unit + units - 1) / payload);
  return {last - first + 1, rule.num_parts + first, first};
}

// The most slots that a step needs whose contexts have `total_tokens` together.
inline int64_t MaxSplitSlots(const SplitRule& rule, int64_t num_sequences, int64_t total_tokens) {
  if (rule.mode == SplitMode::kBalanced) return int64_t{2} * rule.num_parts;
  return rule.num_kv_heads * (num_sequences + total_tokens / rule.unit_tokens);
}

struct SplitPiece {
  int32_t seq;
  int32_t kv_head;
  int32_t context_len;
  int32_t unit_begin;
  int32_t unit_end;
  int32_t slot;  // of the partial result; -1: the piece is the whole pair
};

// Goes through the pieces of a part, in the order of the line:
//   SplitWalk walk(rule, line, part_index, part);
//   while (walk.Next(&piece)) ...
class SplitWalk {
 public:
  TANDEM_HOST_DEVICE SplitWalk(const SplitRule& rule, const SplitLine& line, int32_t part_index,
                               const SplitPart& part)
      : rule_(rule),
        line_(line),
        part_index_(part_index),
        pair_(part.first_pair),
        end_pair_(part.first_pair + part.num_pairs),
        unit_(part.unit_begin),
        last_unit_end_(part.unit_end) {}

  TANDEM_HOST_DEVICE bool Done() const { return pair_ == end_pair_; }
  // The sequence of the piece that Next will return.
  TANDEM_HOST_DEVICE int32_t Sequence() const { return pair_ / rule_.num_kv_heads; }

  TANDEM_HOST_DEVICE bool Next(SplitPiece* piece) {
    if (Done()) return false;
    piece->seq = Sequence();
    piece->kv_head = pair_ - piece->seq * rule_.num_kv_heads;
    piece->context_len = line_.context_lens[piece->seq];
    const UnitRange units = VisibleUnits(rule_, piece->context_len);
    const int32_t end = pair_ == end_pair_ - 1 ? last_unit_end_ : units.end;
    piece->unit_begin = unit_ == kFirstUnit ? units.begin : unit_;
    piece->unit_end = rule_.mode == SplitMode::kFixed ? piece->unit_begin + 1 : end;
    piece->slot = Slot(units, *piece);
    unit_ = piece->unit_end;
    if (unit_ == end) {
      ++pair_;
      unit_ = kFirstUnit;
    }
    return true;
  }

 private:
  static constexpr int32_t kFirstUnit = -1;

  TANDEM_HOST_DEVICE int32_t Slot(const UnitRange& units, const SplitPiece& piece) const {
    const bool begins = piece.unit_begin == units.begin;
    if (begins && piece.unit_end == units.end) return -1;
    if (rule_.mode == SplitMode::kBalanced) {
      return begins ? rule_.num_parts + part_index_ : part_index_;
    }
    const int64_t start = line_.starts[piece.seq] + int64_t{piece.kv_head} * units.size();
    return static_cast<int32_t>(start) + piece.unit_begin - units.begin;
  }

  SplitRule rule_;
  SplitLine line_;
  int32_t part_index_;
  int32_t pair_;  // of the next piece
  int32_t end_pair_;
  int32_t unit_;  // where the next piece begins
  int32_t last_unit_end_;
};

}  // namespace tandem
