#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/finish_reason.h"
#include "kernels/op_args.h"
#include "kvstore/kv_parts.h"

namespace tandem {

// How one worker spent the time of one request. These are durations, because clocks of different
// machines cannot be compared. A stage that the worker does not have is zero.
struct StageTimes {
  Duration queue{};        // accepted -> first chunk begins
  Duration prefill{};      // first chunk begins -> last layer of the last chunk, less `transfer`
  Duration transfer{};     // the engine thread's time for the hand-off during the prefill
  Duration first_token{};  // logits -> first token handed to the stream
  Duration wait_kv{};      // decode worker: accepted -> the KV is complete
};

// The transfer of KV for one request.
struct KvReport {
  // The size of the KV of the prompt's tokens that the peer had not cached. A decode worker reports
  // what it received of that.
  uint64_t raw_bytes = 0;
  uint64_t wire_bytes = 0;  // as sent, headers included
  std::string codec;        // KvCodec::name
  Duration expected{};  // of the transfer alone, predicted when its codec was chosen; 0: unknown
  Duration duration{};  // first frame posted -> acknowledged
  Duration exposed{};   // first token sampled -> acknowledged: not hidden by computation
  // The part of raw_bytes that had landed when the request arrived at the decode worker, which
  // alone reports it.
  uint64_t hidden_bytes = 0;
  KvParts parts;  // parts of the KV that was posted
};

// The end of one choice.
struct ChoiceEnd {
  int32_t index = 0;
  FinishReason reason = FinishReason::kNone;
  double cumulative_logprob = 0;  // of its tokens; sampling reports it when logprobs are requested
  double score = 0;               // what hypotheses of a beam search are ranked by
};

struct FinishInfo {
  absl::Status status;  // OK: every choice has ended or was handed off, and every token was emitted
  FinishReason reason = FinishReason::kNone;  // kHandedOff, or how the last choice ended
  StageTimes stages;
  KvReport kv;
  int32_t cached_tokens = 0;   // tokens of the prompt that came from the prefix cache
  int32_t preemptions = 0;     // of the request's sequences
  int32_t evicted_tokens = 0;  // tokens whose KV was given up: the most of any choice
};

// Receives the output of a request. It is called on the engine thread, one call at a time. It must
// not block, nor call parts of the engine that belong to the engine thread.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // The next tokens of choice `index`.
  virtual void OnTokens(int32_t index, std::span<const SampledToken> tokens,
                        const StageTimes& stages) = 0;
  // The next tokens of the prompt with their log-probabilities; the first of them is at position
  // `first`. Called before the first token of any choice.
  virtual void OnPromptLogprobs(int32_t first, std::span<const SampledToken> tokens) = 0;
  // The prefill of a beam search has ended: `first.top` has the most probable first tokens, for the
  // decode worker.
  virtual void OnBeamStart(const SampledToken& first, const StageTimes& stages) = 0;
  // Called once per choice that ends on this worker, after its last tokens, unless the request
  // fails.
  virtual void OnChoiceEnd(const ChoiceEnd& end) = 0;
  // Called exactly once, as the last call.
  virtual void OnFinish(const FinishInfo& info) = 0;
};

// Owns a sink and guarantees that it receives exactly one OnFinish, whatever happens to the request
// (P1): a stream that is destroyed without Finish reports INTERNAL. Move-only.
class OutputStream {
 public:
  OutputStream() = default;
  explicit OutputStream(std::unique_ptr<TokenSink> sink) : sink_(std::move(sink)) {}
  OutputStream(OutputStream&&) = default;
  OutputStream& operator=(OutputStream&& other) noexcept;
  ~OutputStream();

  // Passes output on to the sink. CHECKs, as all calls that pass something on, that the stream is
  // open.
  void Emit(int32_t index, std::span<const SampledToken> tokens, const StageTimes& stages);
  void EmitPromptLogprobs(int32_t first, std::span<const SampledToken> tokens);
  void EmitBeamStart(const SampledToken& first, const StageTimes& stages);
  void EndChoice(const ChoiceEnd& end);
  // Ends the stream; it is closed afterwards.
  void Finish(const FinishInfo& info);
  void Fail(const absl::Status& status);
  bool open() const { return sink_ != nullptr; }

 private:
  std::unique_ptr<TokenSink> sink_;
};

}  // namespace tandem
