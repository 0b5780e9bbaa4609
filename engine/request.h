#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/kv_quality.h"
#include "base/sampling_params.h"
#include "base/token_constraints.h"
#include "base/token_eviction.h"
#include "engine/beam_search.h"
#include "kernels/op_args.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// The tokens that a choice had emitted before its worker was lost or left. Another worker continues
// the choice behind them.
struct OutputSoFar {
  std::vector<int32_t> token_ids;
  double cumulative_logprob = 0;
  bool ended = false;  // the choice needs no more tokens
};

// One request as an engine receives it: as token ids, with all defaults filled in.
struct EngineRequest {
  RequestId id;
  std::string client_id;        // the id that the client knows, for a dump of its KV
  std::vector<int32_t> prompt;  // at least one token, each in [0, vocab)
  SamplingParams sampling;
  TokenConstraints constraints;
  // Log-probabilities of the prompt's tokens: -1: none; n: those of each token after the first and
  // of the n most probable alternatives. Not computed for a request that resumes, nor by a decode
  // worker.
  int32_t prompt_logprobs = -1;
  // The number of sampled choices, each with its own seed (ChoiceSeed), or of hypotheses that a
  // beam search returns.
  int32_t n = 1;
  std::optional<BeamParams> beams;      // a beam search uses only num_logprobs of `sampling`
  int32_t max_tokens = 0;               // at least 1; 0 with prompt_logprobs: nothing is decoded
  std::vector<int32_t> stop_token_ids;  // EOS among them unless the client ignores it; sorted
  int32_t priority = 0;
  TimePoint deadline = kNoDeadline;
  std::string tenant;      // name of the tenant; tenants of equal priority get equal shares
  std::string cache_salt;  // prefixes are shared only among requests with equal salts
  KvQuality quality = KvQuality::kExact;  // how much the KV may lose when it is handed off
  std::optional<TokenEviction> eviction;  // of the prompt's KV, once the prompt is computed
  // For a request that resumes, one entry per choice: only the tokens behind it are emitted. Empty
  // for any other request; always empty for a beam search.
  std::vector<OutputSoFar> so_far;
};

// The number of rows of one decode step of a request: its choices or its beams.
inline int32_t WidthOf(const EngineRequest& request) {
  return request.beams ? request.beams->width : request.n;
}

// How many tokens of a prompt keep their KV after eviction.
inline int32_t StoredTokens(size_t prompt_tokens, const std::optional<TokenEviction>& eviction) {
  const auto tokens = static_cast<int32_t>(prompt_tokens);
  return eviction ? eviction->StoredTokens(tokens) : tokens;
}

// What a decode worker can read besides raw extents: frames of these codecs (docs/kv_codecs.md),
// and frames that need the codec tables that it has.
struct ReadableKv {
  std::vector<CodecId> codecs;   // raw: frames of any number of tokens; none: it reads no frames
  std::vector<uint64_t> tables;  // CodecTables::id

  bool Has(CodecId codec) const { return std::ranges::find(codecs, codec) != codecs.end(); }
  bool HasTables(uint64_t id) const { return std::ranges::find(tables, id) != tables.end(); }
};

// The decode worker that a prefill worker pushes the KV of a request to, from its answer to
// Reserve.
struct HandoffTarget {
  std::string data_address;
  ReservationId reservation;
  uint64_t epoch = 0;
  int32_t cached_tokens = 0;  // tokens of the prompt whose KV the decode worker has cached
  int32_t stored_tokens = 0;  // tokens that it has reserved room for; 0: all of the prompt
  Duration lease{};           // renewed several times in that time; zero: never renewed
  ReadableKv reads;
};

struct Reservation {
  ReservationId id;
  uint64_t epoch = 0;         // incarnation of the decode engine
  int32_t cached_tokens = 0;  // prompt tokens cached by the decode worker: frames begin behind them
  int32_t stored_tokens =
      0;              // prompt tokens whose KV is to come; fewer than all where KV is evicted
  Duration lease{};   // time after which blocks are freed without a frame, renewal or claim
  Duration queued{};  // how long the reservation waited for room
  ReadableKv reads;
};

// Identifies one call of Engine::Reserve.
using ReserveTicket = StrongId<struct ReserveTicketTag, uint64_t>;

// Whether a reservation for which there is no room now waits or is refused.
enum class WhenFull : uint8_t { kWait, kRefuse };

struct ReserveRequest {
  RequestId id;
  std::vector<int32_t> prompt;
  int32_t max_tokens = 0;
  int32_t width = 1;  // rows that will decode: the request's choices or beams
  int32_t priority = 0;
  // Layout and model of the prefill worker that will push the KV. FAILED_PRECONDITION when it
  // serves another model, or when its KV cannot be converted without changing its values
  // (CanConvert).
  KvLayout layout;
  uint64_t model_fingerprint = 0;
  TimePoint deadline = kNoDeadline;
  std::string tenant;
  std::string cache_salt;
  KvQuality quality = KvQuality::kExact;  // what the KV may lose on its way
  std::optional<TokenEviction> eviction;  // by the prefill worker, at the end of the prompt
  WhenFull when_full = WhenFull::kWait;
};

// A request for a decode worker: the reservation that receives its KV, and the tokens that the
// prefill worker sampled. These are the first token of each choice, which the prefill worker has
// emitted and this worker does not emit again, or for a beam search the token of OnBeamStart. A
// choice whose first token ended it has ended at the prefill worker. first_tokens is not used when
// request.so_far is not empty.
struct DecodeRequest {
  EngineRequest request;
  ReservationId reservation;
  std::vector<SampledToken> first_tokens;
};

}  // namespace tandem
