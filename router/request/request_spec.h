#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// One client's request, everything resolved.
struct RequestSpec {
  std::string id;  // for logs and the summary
  std::string model;
  v1::SequenceRequest sequence;  // sequence.n: choices that the workers report
  std::vector<std::string> stop_strings;
  int32_t n = 1;  // choices that the client gets: the best of those, if fewer
  enum class Logprobs : uint8_t { kUnwanted, kWanted } logprobs = Logprobs::kUnwanted;  // by it
  v1::Route wanted = v1::ROUTE_AUTO;
  TimePoint received;
  TimePoint deadline = kNoDeadline;

  bool has_beams() const { return sequence.has_beam_search(); }
  // Whether all choices must have ended before the client can be told of one.
  bool ranked() const { return n < sequence.n(); }
  // Rows that a worker decodes for it.
  int32_t width() const { return has_beams() ? sequence.beam_search().beam_width() : sequence.n(); }
};

}  // namespace tandem
