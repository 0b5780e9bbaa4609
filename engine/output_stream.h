#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/finish_reason.h"
#include "kernels/op_args.h"

namespace tandem {

// Where the time of one request went at one worker, on that worker's clock. Durations, so that
// they can travel. Zero where the worker has no such stage.
struct StageTimes {
  Duration queue{};        // accepted -> first chunk begins
  Duration prefill{};      // first chunk begins -> last layer of the last chunk, less `transfer`
  Duration transfer{};     // of that span, the engine thread's time spent on the hand-off
  Duration first_token{};  // logits -> first token handed to the stream
  Duration wait_kv{};      // decode worker: accepted -> the KV is complete
};

// What moved between workers for one request.
struct KvReport {
  uint64_t raw_bytes = 0;   // KV of the prompt's tokens that the peer had not cached
  uint64_t wire_bytes = 0;  // as sent, headers included
  Duration duration{};      // first frame posted -> acknowledged
  Duration exposed{};       // first token sampled -> acknowledged: what the transfer did not hide
  // Of raw_bytes, what had landed when the decode worker was given the request. It alone tells.
  uint64_t hidden_bytes = 0;
};

// How one choice ended.
struct ChoiceEnd {
  int32_t index = 0;
  FinishReason reason = FinishReason::kNone;
  double cumulative_logprob = 0;  // of its tokens; sampling reports it where logprobs are wanted
  double score = 0;               // beam search: what hypotheses are ranked by
};

struct FinishInfo {
  absl::Status
      status;  // OK: every choice has ended, or was handed off, and every token was emitted
  FinishReason reason = FinishReason::kNone;  // kHandedOff, or how the last choice ended
  StageTimes stages;
  KvReport kv;
  int32_t cached_tokens = 0;  // of the prompt: taken from the prefix cache instead of computed
  int32_t preemptions = 0;    // of its sequences
};

// Takes what a request produces. Called on the engine thread, one call at a time; must not block
// and must not call back into the engine's thread-confined parts.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // The next tokens of choice `index`.
  virtual void OnTokens(int32_t index, std::span<const SampledToken> tokens,
                        const StageTimes& stages) = 0;
  // Prefill of a beam search: the most probable first tokens (`first.top`), for who decodes.
  virtual void OnBeamStart(const SampledToken& first, const StageTimes& stages) = 0;
  // Once per choice that ends here, after its last tokens, unless the request fails.
  virtual void OnChoiceEnd(const ChoiceEnd& end) = 0;
  // Exactly once, last.
  virtual void OnFinish(const FinishInfo& info) = 0;
};

// Owns a sink and sees to it that the sink hears exactly one OnFinish, whatever becomes of the
// request (P1): dropped without Finish, it reports INTERNAL. Move-only.
class OutputStream {
 public:
  OutputStream() = default;
  explicit OutputStream(std::unique_ptr<TokenSink> sink) : sink_(std::move(sink)) {}
  OutputStream(OutputStream&&) = default;
  OutputStream& operator=(OutputStream&& other) noexcept;
  ~OutputStream();

  // CHECKs that the stream is open.
  void Emit(int32_t index, std::span<const SampledToken> tokens, const StageTimes& stages);
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
