#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/simulator/timeline.h"
#include "engine/output_stream.h"
#include "router/client/worker_client.h"

namespace tandem::simulator {

// How often a router hears of the tokens of one sequence.
enum class TokenEvents : uint8_t {
  kEach,     // one message per token, as from a real worker
  kGrouped,  // after the first token one message for up to kMostGrouped, each with its own time
};
inline constexpr size_t kMostGrouped = 32;

// A streaming call of a router to a simulated worker: what the worker emitted and the router was
// not handed yet. Thread: the router's loop.
class SimulatedStream {
 public:
  explicit SimulatedStream(StreamHandlers handlers) : handlers_(std::move(handlers)) {}

  // The worker emitted a token, which arrives at the given time.
  void Push(TimePoint arrival, const StageTimes& stages);
  void SetChoiceEnd(const ChoiceEnd& end) { choice_end_ = end; }
  size_t num_unsent() const { return unsent_.size(); }
  bool sent_any() const { return sent_any_; }
  // Tokens that have arrived by now go to the router. `arrivals` shows their times meanwhile.
  void SendTokens(TimePoint now, std::span<const TimePoint>& arrivals);
  // Everything has arrived: the router learns how the call ended.
  void SendEnd(const FinishInfo& info);
  // The worker was lost.
  void SendLoss(const CallEnd& end);

  // The router does not want the call any more, or knows its end.
  void Close() { closed_ = true; }
  bool closed() const { return closed_; }

 private:
  void Send(const v1::WorkerEvent& event);

  std::vector<TimePoint> unsent_;  // when these tokens arrive
  bool sent_any_ = false;
  bool closed_ = false;
  StageTimes stages_;  // of the first token
  std::optional<ChoiceEnd> choice_end_;
  const StreamHandlers handlers_;
};

// The sink of a request at a simulated worker.
class StreamSink final : public TokenSink {
 public:
  struct Parts {
    Timeline& timeline;
    Duration hop;
    TokenEvents token_events;
    std::function<void(const std::shared_ptr<SimulatedStream>&)> deliver_tokens;  // after the hop
    std::function<void(const std::shared_ptr<SimulatedStream>&, const FinishInfo&)> deliver_end;
  };
  // `parts` outlive it.
  StreamSink(const Parts& parts, std::shared_ptr<SimulatedStream> stream,
             std::function<void()> ended)
      : parts_(parts), stream_(std::move(stream)), ended_(std::move(ended)) {}

  void OnTokens(int32_t index, std::span<const SampledToken> tokens,
                const StageTimes& stages) override;
  void OnPromptLogprobs(int32_t, std::span<const SampledToken>) override {}
  void OnBeamStart(const SampledToken& first, const StageTimes& stages) override;
  void OnChoiceEnd(const ChoiceEnd& end) override { stream_->SetChoiceEnd(end); }
  void OnFinish(const FinishInfo& info) override;

 private:
  const Parts& parts_;
  const std::shared_ptr<SimulatedStream> stream_;
  const std::function<void()> ended_;
};

}  // namespace tandem::simulator
