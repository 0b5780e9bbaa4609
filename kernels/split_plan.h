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
// The pieces that a part computes are in split_pieces.h.
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

}  // namespace tandem
