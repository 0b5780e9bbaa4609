#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/sampling_params.h"
#include "engine/beam_search.h"
#include "kernels/op_args.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// What a choice had said when its worker was lost or left: it goes on behind these tokens.
struct OutputSoFar {
  std::vector<int32_t> token_ids;
  double cumulative_logprob = 0;
  bool ended = false;  // it needs no more
};

// One request as an engine gets it: tokens in, everything resolved.
struct EngineRequest {
  RequestId id;
  std::vector<int32_t> prompt;  // at least one token, each in [0, vocab)
  SamplingParams sampling;
  // Choices that are sampled, each with a seed of its own (ChoiceSeed), or hypotheses returned.
  int32_t n = 1;
  std::optional<BeamParams> beams;      // then of `sampling` only num_logprobs is looked at
  int32_t max_tokens = 0;               // at least 1
  std::vector<int32_t> stop_token_ids;  // EOS among them unless the client ignores it; sorted
  int32_t priority = 0;
  TimePoint deadline = kNoDeadline;
  std::string tenant;      // whose: tenants of equal priority get equal shares
  std::string cache_salt;  // prefixes are shared among equal salts only
  // Empty: from the start. Else one per choice: only the tokens behind these are emitted. Of a beam
  // search always empty.
  std::vector<OutputSoFar> so_far;

  // Rows of one decode step.
  int32_t width() const { return beams ? beams->width : n; }
};

// Where a prefill worker pushes the KV of a request, as the decode worker's Reserve answered.
struct HandoffTarget {
  std::string data_address;
  ReservationId reservation;
  uint64_t epoch = 0;
  int32_t cached_tokens = 0;  // of the prompt, that the decode worker has: their KV is not sent
  Duration lease{};           // it is renewed several times in that span; zero: never
};

struct Reservation {
  ReservationId id;
  uint64_t epoch = 0;         // this engine's incarnation
  int32_t cached_tokens = 0;  // of the prompt, held already: frames begin behind them
  Duration lease{};   // without a frame, a renewal or a claim for that long the blocks go back
  Duration queued{};  // waited for room
};

// One call of Reserve.
using ReserveTicket = StrongId<struct ReserveTicketTag, uint64_t>;

// What becomes of a reservation for which there is no room now.
enum class WhenFull : uint8_t { kWait, kRefuse };

struct ReserveRequest {
  RequestId id;
  std::vector<int32_t> prompt;
  int32_t max_tokens = 0;
  int32_t width = 1;  // rows that it will decode with: its choices, or its beams
  int32_t priority = 0;
  // Of the worker that will push. FAILED_PRECONDITION when it serves another model, or its KV
  // cannot be kept here without changing its values (CanConvert).
  KvLayout layout;
  uint64_t model_fingerprint = 0;
  TimePoint deadline = kNoDeadline;
  std::string tenant;
  std::string cache_salt;
  WhenFull when_full = WhenFull::kWait;
};

// A decode worker's part: the reservation with its KV, and what was sampled elsewhere: the first
// token of each choice (emitted there and not emitted again; those that end with it have ended
// there), or for beams the one that OnBeamStart gave. Not looked at where request.so_far says more.
struct DecodeRequest {
  EngineRequest request;
  ReservationId reservation;
  std::vector<SampledToken> first_tokens;
};

}  // namespace tandem
