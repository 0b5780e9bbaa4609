#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"

namespace tandem::cpu {

// Calls body(begin, end) over [0, rows), on the pool's threads, in pieces of about 16,384 elements:
// enough to be worth waking a thread. Where rows are cut never affects the result of any row.
template <class Body>
void ForRows(ThreadPool& pool, int64_t rows, int64_t elements_per_row, const Body& body) {
  constexpr int64_t kPieceElements = 16384;
  const int64_t piece =
      std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, elements_per_row));
  pool.ParallelFor((rows + piece - 1) / piece, [&](int64_t index, int) {
    body(index * piece, std::min(rows, (index + 1) * piece));
  });
}

}  // namespace tandem::cpu
