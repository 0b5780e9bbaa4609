#pragma once

#include <cstdint>

#include "kernels/split_plan.h"

// The pieces of a decode step whose contexts are cut by split_plan.h, and where their results go.
//
// A piece is a run of units of one pair that is computed in one go. A pair that is a single piece
// writes its output at once; the others leave one partial result per piece, in the piece's slot,
// and the partial results of a pair are merged in the order of the keys.

namespace tandem {

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
