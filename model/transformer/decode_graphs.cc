#include "model/transformer/decode_graphs.h"

#include <algorithm>

namespace tandem {

int32_t DecodeGraphs::SizeFor(int32_t rows) const {
  int32_t step = 1;  // 1, 2, 4, 8, 16, 24, ... 64, 96, 128, ...
  if (rows > 64) {
    step = 32;
  } else if (rows > 8) {
    step = 8;
  } else {
    while (step < rows) step *= 2;
  }
  return std::min(max_rows_, (rows + step - 1) / step * step);
}

DecodeGraphs::Entry& DecodeGraphs::For(int32_t size, const std::byte* pool) {
  if (pool != pool_) entries_.clear();
  pool_ = pool;
  return entries_[size];
}

}  // namespace tandem
