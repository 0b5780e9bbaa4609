#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernels/device.h"

namespace tandem {

// The recorded forward passes of decode batches, one for each size to which batches are padded.
// Thread: engine.
class DecodeGraphs {
 public:
  struct Entry {
    // Whether a batch of this size has run. The first one runs without recording, because libraries
    // then choose and load their kernels, which is not allowed while a graph is recorded.
    bool warm = false;
    std::unique_ptr<Graph> graph;  // null: not recorded yet
  };

  explicit DecodeGraphs(int32_t max_rows) : max_rows_(max_rows) {}

  // The size to which a batch of `rows` is padded.
  int32_t SizeFor(int32_t rows) const;
  // All sizes to which batches are padded, in rising order.
  std::vector<int32_t> Sizes() const;
  // The entry for batches that are padded to `size`. Graphs that were recorded with another `pool`
  // are dropped, because they would write to that pool.
  Entry& For(int32_t size, const std::byte* pool);

 private:
  const int32_t max_rows_;
  const std::byte* pool_ = nullptr;
  std::map<int32_t, Entry> entries_;
};

}  // namespace tandem
