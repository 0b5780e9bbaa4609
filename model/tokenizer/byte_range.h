#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace tandem {

// A part of a text, in bytes.
struct ByteRange {
  size_t begin;
  size_t end;
};

// Whether one of `ranges`, which are sorted and disjoint, overlaps [begin, end).
inline bool Overlaps(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  const auto first = std::partition_point(
      ranges.begin(), ranges.end(), [&](const ByteRange& range) { return range.end <= begin; });
  return first != ranges.end() && first->begin < end;
}

// The parts of `ranges` that are in [begin, end), with offsets counted from `begin`.
inline std::vector<ByteRange> Within(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  std::vector<ByteRange> inside;
  auto range = std::partition_point(ranges.begin(), ranges.end(),
                                    [&](const ByteRange& each) { return each.end <= begin; });
  for (; range != ranges.end() && range->begin < end; ++range) {
    inside.push_back({std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  }
  return inside;
}

}  // namespace tandem
