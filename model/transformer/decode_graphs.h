#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernels/device.h"

namespace tandem {

// The recorded forward passes of decode batches, one for each size that batches are filled up to.
// Thread: engine.
class DecodeGraphs {
 public:
  struct Entry {
    // The first batch of a size runs as it is: libraries choose and load their kernels then, which
    // they may not do while a graph is recorded.
    bool warm = false;
    std::unique_ptr<Graph> graph;  // null: not recorded yet
  };

  explicit DecodeGraphs(int32_t max_rows) : max_rows_(max_rows) {}

  // The rows that a batch of `rows` is filled up to: few sizes, little filling.
  int32_t SizeFor(int32_t rows) const;
  // All of them, rising.
  std::vector<int32_t> Sizes() const;
  // The entry of a size. Graphs recorded with another `pool` are let go: they write there.
  Entry& For(int32_t size, const std::byte* pool);

 private:
  const int32_t max_rows_;
  const std::byte* pool_ = nullptr;
  std::map<int32_t, Entry> entries_;
};

}  // namespace tandem
