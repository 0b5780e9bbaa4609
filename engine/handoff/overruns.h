#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

// How much longer transfers to a peer took than their models say, way by way. What was observed of a way that
// is not used counts less from transfer to transfer, so that it is tried again. Thread-compatible.
class Overruns {
 public:
  double SecondsPerByte(size_t way) const;
  // A transfer of so many bytes took so much longer; less is 0.
  void Add(size_t way, int64_t bytes, double seconds);

 private:
  struct Sums {
    double seconds = 0;
    double bytes = 0;
  };
  std::vector<Sums> ways_;
};

}  // namespace tandem
