#pragma once

#include <cstdint>
#include <initializer_list>

#include "bench/serving/random.h"

namespace tandem::simulator {

// Kinds of events that a digest tells apart.
enum class Happening : uint64_t {
  kStep,      // a worker began a step
  kTransfer,  // KV was sent
  kCall,      // a router called a worker
  kEnd,       // a request ended at its client
};

// A hash of all events of a run, in their order: runs with equal digests went the same way.
class Digest {
 public:
  void Add(Happening happening, std::initializer_list<uint64_t> values,
           std::initializer_list<uint64_t> more = {}) {
    Mix(static_cast<uint64_t>(happening));
    for (const uint64_t value : values) Mix(value);
    for (const uint64_t value : more) Mix(value);
    ++events_;
  }

  uint64_t value() const { return value_; }
  uint64_t events() const { return events_; }

 private:
  void Mix(uint64_t value) { value_ = loadgen::MixSeeds(value_, value); }

  uint64_t value_ = 0;
  uint64_t events_ = 0;
};

}  // namespace tandem::simulator
