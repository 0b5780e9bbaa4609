#include "model/transformer/decode_graphs.h"

#include <algorithm>

namespace tandem {

int32_t DecodeGraphs::SizeFor(int32_t rows) const {
  int32_t step = 1;  // batches of 1, 2, 4, 8, 16, 24, ... 64, 96, 128, ...
  if (rows > 64) {
    step = 32;
  } else if (rows > 8) {
    step = 8;
  } else {
    while (step < rows) step *= 2;
  }
  return std::min(max_rows_, (rows + step - 1) / step * step);
}

std::vector<int32_t> DecodeGraphs::Sizes() const {
  std::vector<int32_t> sizes = {SizeFor(1)};
  while (sizes.back() < max_rows_) sizes.push_back(SizeFor(sizes.back() + 1));
  return sizes;
}

DecodeGraphs::Entry& DecodeGraphs::For(int32_t size, const std::byte* pool) {
  if (pool != pool_) entries_.clear();
  pool_ = pool;
  return entries_[size];
}

}  // namespace tandem
