#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

// How much longer transfers to a peer took than their models predict, for each way to encode KV.
// The observations of a way that is not used lose weight with every transfer, so that it is tried
// again. Thread-compatible.
class Overruns {
 public:
  double SecondsPerByte(size_t way) const;
  // Adds a transfer of `bytes` that took `seconds` longer than predicted; negative values count as
  // 0.
  void Add(size_t way, int64_t bytes, double seconds);

 private:
  struct Sums {
    double seconds = 0;
    double bytes = 0;
  };
  std::vector<Sums> ways_;
};

}  // namespace tandem
