#include "bench/simulator/calls.h"

#include <algorithm>

#include "base/check.h"
#include "server/services/worker_messages.h"

namespace tandem::simulator {

void SimulatedStream::Push(TimePoint arrival, const StageTimes& stages) {
  if (unsent_.empty() && !sent_any_) stages_ = stages;
  unsent_.push_back(arrival);
}

void SimulatedStream::Send(const v1::WorkerEvent& event) {
  if (!closed_) handlers_.on_event(event);
}

void SimulatedStream::SendTokens(TimePoint now, std::span<const TimePoint>& arrivals) {
  const auto arrived = std::ranges::upper_bound(unsent_, now);
  const auto count = static_cast<size_t>(arrived - unsent_.begin());
  if (count == 0) return;
  v1::WorkerEvent event;
  v1::WorkerTokens& tokens = *event.mutable_tokens();
  for (size_t i = 0; i < count; ++i) tokens.add_token_ids(1);
  if (!sent_any_) *tokens.mutable_stages() = ToProto(stages_);
  sent_any_ = true;
  arrivals = std::span<const TimePoint>(unsent_).first(count);
  Send(event);
  arrivals = {};
  unsent_.erase(unsent_.begin(), arrived);
}

void SimulatedStream::SendEnd(const FinishInfo& info) {
  if (info.status.ok()) {
    v1::WorkerEvent event;
    if (choice_end_) {
      *event.mutable_choice_finish() = ToProto(*choice_end_);
      Send(event);
    }
    *event.mutable_finish() = ToProto(info);
    Send(event);
  }
  SendLoss({info.status, CallEnd::Source::kWorker});
}

void SimulatedStream::SendLoss(const CallEnd& end) {
  if (closed_) return;
  closed_ = true;
  handlers_.on_end(end);
}

void StreamSink::OnTokens(int32_t, std::span<const SampledToken> tokens, const StageTimes& stages) {
  const TimePoint arrival = parts_.timeline.Now() + parts_.hop;
  for (size_t i = 0; i < tokens.size(); ++i) stream_->Push(arrival, stages);
  const bool is_first = !stream_->sent_any() && stream_->num_unsent() == 1;
  if (is_first || parts_.token_events == TokenEvents::kEach ||
      stream_->num_unsent() >= kMostGrouped) {
    parts_.deliver_tokens(stream_);
  }
}

void StreamSink::OnBeamStart(const SampledToken&, const StageTimes&) {
  TANDEM_CHECK(false, "simulated requests have no beams");
}

void StreamSink::OnFinish(const FinishInfo& info) {
  parts_.deliver_end(stream_, info);
  ended_();
}

}  // namespace tandem::simulator
