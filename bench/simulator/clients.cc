#include "bench/simulator/clients.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "bench/serving/answer.h"

namespace tandem::simulator {
namespace {

using loadgen::RequestRecord;
using loadgen::ScheduledRequest;

}  // namespace

std::vector<int32_t> PromptTokens(const ScheduledRequest& request) {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(request.prompt_tokens()));
  for (const loadgen::PromptSegment& segment : request.prompt) {
    for (int32_t i = 0; i < segment.tokens; ++i) {
      // The finalizer of splitmix64: much faster than a generator with a long period.
      uint64_t bits = segment.seed + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15;
      bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
      bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
      tokens.push_back(static_cast<int32_t>((bits ^ (bits >> 31)) % kVocabulary));
    }
  }
  return tokens;
}

// One request, as its client sees it.
class SimulatedClients::Call final : public ResponseStream {
 public:
  Call(SimulatedClients& clients, size_t index) : clients_(clients), index_(index) {}

  bool Send(const v1::GenerateResponse& response, Pace) override {
    loadgen::CallEnd& end = record().end;
    if (response.has_chunk()) AddTokens(static_cast<size_t>(response.chunk().token_ids_size()));
    if (response.has_finish()) {
      finished_ = true;
      loadgen::TakeFinish(response.finish(), end);
    }
    if (response.has_summary()) {
      summarized_ = true;
      loadgen::TakeSummary(response.summary(), end);
    }
    return true;
  }

  void End(const absl::Status& status) override {
    loadgen::CallEnd& end = record().end;
    end.status = status;
    end.whole = finished_ && summarized_;
    clients_.OnEnd(index_);
  }

  RequestId id;

 private:
  RequestRecord& record() { return clients_.result_.records[index_]; }

  // A resumed request may repeat tokens that the client has: only the last ones are new.
  void AddTokens(size_t count) {
    const std::span<const TimePoint> arrivals = clients_.parts_.network.arrivals();
    const size_t known = std::min(count, arrivals.size());
    for (const TimePoint at : arrivals.last(known)) AddToken(at);
    for (size_t i = known; i < count; ++i) AddToken(clients_.parts_.timeline.Now());
    clients_.parts_.counts.tokens += static_cast<int64_t>(count);
  }

  void AddToken(TimePoint at) {
    const Duration since_start = at - clients_.parts_.timeline.start() + clients_.options_.hop;
    std::vector<loadgen::ChunkArrival>& chunks = record().chunks;
    if (chunks.size() < 2 || chunks.back().tokens >= clients_.options_.tokens_per_chunk) {
      chunks.push_back({since_start, 1});
    } else {
      chunks.back() = {since_start, chunks.back().tokens + 1};
    }
  }

  SimulatedClients& clients_;
  const size_t index_;
  bool finished_ = false;
  bool summarized_ = false;
};

SimulatedClients::SimulatedClients(const Parts& parts, const loadgen::RunOptions& run,
                                   const ClientOptions& options)
    : parts_(parts),
      run_(run),
      options_(options),
      calls_(parts.schedule.requests.size()),
      free_since_(static_cast<size_t>(run.max_concurrency), Duration::zero()) {
  result_.records.resize(parts.schedule.requests.size());
}

SimulatedClients::~SimulatedClients() = default;

bool SimulatedClients::HasFreeSlot() const {
  return run_.max_concurrency == 0 || under_way_ < run_.max_concurrency;
}

void SimulatedClients::SendDue() {
  const std::vector<ScheduledRequest>& requests = parts_.schedule.requests;
  while (next_ < requests.size() && HasFreeSlot()) {
    if (!run_.closed_loop && requests[next_].at > parts_.timeline.elapsed()) {
      if (std::exchange(waits_for_arrival_, true)) return;
      return parts_.timeline.At(parts_.timeline.start() + requests[next_].at, [this] {
        waits_for_arrival_ = false;
        SendDue();
      });
    }
    Send(next_++);
    if (next_ == requests.size()) {
      parts_.timeline.After(run_.drain_timeout, [this] { Abandon(); });
    }
  }
}

void SimulatedClients::Send(size_t index) {
  const ScheduledRequest& request = parts_.schedule.requests[index];
  RequestRecord& record = result_.records[index];
  const Duration now = parts_.timeline.elapsed();
  Duration free_since{};
  if (run_.max_concurrency > 0) {
    free_since = free_since_[next_free_++ % free_since_.size()];
  }
  record.id = run_.id_prefix + "-" + std::to_string(index);
  record.prompt_tokens = request.prompt_tokens();
  record.wanted_tokens = request.output_tokens;
  record.scheduled = run_.closed_loop ? free_since : request.at;
  record.due = std::max(record.scheduled, free_since);
  record.sent = now;
  record.chunks.reserve(2);
  result_.peak_concurrency = std::max(result_.peak_concurrency, ++under_way_);
  calls_[index] = std::make_unique<Call>(*this, index);
  ++parts_.counts.sent;
  parts_.timeline.After(options_.hop, [this, index] { Submit(index); });
  if (request.cancel_after) {
    parts_.timeline.After(*request.cancel_after, [this, index] {
      if (calls_[index] == nullptr) return;
      result_.records[index].cancel_planned = true;
      Cancel(index);
    });
  }
}

void SimulatedClients::Submit(size_t index) {
  if (calls_[index] == nullptr) return;  // it was cancelled on the way
  const ScheduledRequest& request = parts_.schedule.requests[index];
  v1::GenerateRequest message;
  const std::vector<int32_t> tokens = PromptTokens(request);
  message.mutable_token_ids()->mutable_ids()->Add(tokens.begin(), tokens.end());
  message.set_max_tokens(request.output_tokens);
  message.set_ignore_eos(true);
  message.set_request_id(result_.records[index].id);
  message.set_route(options_.routes.empty() ? options_.route : options_.routes[index]);
  const absl::StatusOr<RequestId> id =
      parts_.router.Submit(std::move(message), kNoDeadline, *calls_[index]);
  if (id.ok()) {
    calls_[index]->id = *id;
    return;
  }
  result_.records[index].end.status = id.status();
  OnEnd(index);
}

void SimulatedClients::Cancel(size_t index) {
  const absl::Status status = Cancelled("the client cancelled the request");
  if (calls_[index]->id != RequestId()) return parts_.router.Cancel(calls_[index]->id, status);
  result_.records[index].end.status = status;
  OnEnd(index);
}

void SimulatedClients::Abandon() {
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i] == nullptr) continue;
    result_.records[i].abandoned = true;
    Cancel(i);
  }
}

void SimulatedClients::OnEnd(size_t index) {
  RequestRecord& record = result_.records[index];
  record.ended = parts_.timeline.elapsed() + options_.hop;
  result_.length = std::max(result_.length, record.ended);
  last_ended_ = std::move(calls_[index]);
  parts_.digest.Add(Happening::kEnd, {index, static_cast<uint64_t>(record.ended.count()),
                                      static_cast<uint64_t>(record.end.status.raw_code()),
                                      static_cast<uint64_t>(loadgen::OutputTokens(record))});
  const absl::Status& status = record.end.status;
  if (!status.ok() && !absl::IsCancelled(status)) ++parts_.counts.failed;
  ++parts_.counts.ended;
  parts_.timeline.After(options_.hop, [this] {
    ++ended_;
    --under_way_;
    if (run_.max_concurrency > 0) {
      free_since_[next_freed_++ % free_since_.size()] = parts_.timeline.elapsed();
    }
    SendDue();
  });
}

loadgen::RunResult SimulatedClients::Take() { return std::move(result_); }

}  // namespace tandem::simulator
