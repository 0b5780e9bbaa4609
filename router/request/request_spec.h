#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "router/output_length/output_length_predictor.h"
#include "router/policy/slo.h"
#include "router/prefix/prompt_hashes.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/worker.pb.h"
#include "tracing/request_trace.h"

namespace tandem {

// One client's request with every default filled in.
struct RequestSpec {
  std::string id;  // the id of the request in logs and in the summary
  std::string model;
  v1::SequenceRequest sequence;  // sequence.n: choices that the workers report
  std::vector<std::string> stop_strings;
  // What the text contains besides the output itself: the stop string or stop token that ended it,
  // and special tokens.
  enum class Text : uint8_t { kLeftOut, kIncluded };
  struct SpecialTexts {
    Text stop = Text::kLeftOut;
    Text tokens = Text::kLeftOut;
    std::vector<int32_t> shown_ids = {};  // sorted; special tokens that are shown in any case
  };
  SpecialTexts special = {};
  int32_t n = 1;  // choices that the client gets: the best of sequence.n, if fewer
  // Whether the client wants log-probabilities; ranking needs them in any case.
  enum class Logprobs : uint8_t { kUnwanted, kWanted } logprobs = Logprobs::kUnwanted;
  v1::Route wanted = v1::ROUTE_AUTO;
  Slo slo;
  uint64_t session = 0;  // of the conversation (SessionKey); 0: none
  // The hashes by which the router finds cached prefixes; null where it predicts no prefix hits.
  std::shared_ptr<const PromptHashes> prompt_hashes = nullptr;
  TimePoint received;
  TimePoint deadline = kNoDeadline;
  // The span that stands for the request, where it is traced. The loop's thread has it once the
  // request is in flight.
  TracePoint trace = {};

  // The ids of the request's trace and of its span there, as logs show them; empty where there is
  // none.
  std::string trace_id() const { return trace.trace == nullptr ? "" : trace.trace->trace_id(); }
  std::string span_id() const { return trace.trace == nullptr ? "" : trace.trace->span_id(); }

  bool has_beams() const { return sequence.has_beam_search(); }
  // Whether all choices must have ended before the client can be sent one.
  bool ranked() const { return n < sequence.n(); }
  // Whether the outputs may end before max_tokens. Otherwise their length is known.
  bool may_stop() const {
    return !has_beams() && (sequence.stop_token_ids_size() > 0 || !stop_strings.empty());
  }
  // What the length of one of the request's outputs is predicted from. The query points into this
  // spec.
  LengthQuery length_query(int32_t emitted = 0) const {
    return {.tenant = sequence.tenant(),
            .prompt_tokens = sequence.prompt_size(),
            .max_tokens = std::max(sequence.max_tokens(), 1),
            .emitted = emitted};
  }
  // How many tokens of the prompt lose their KV at its end.
  int32_t evicted_tokens() const;
  // The rows that a worker decodes for the request.
  int32_t width() const { return has_beams() ? sequence.beam_search().beam_width() : sequence.n(); }
};

}  // namespace tandem
