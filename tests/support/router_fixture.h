#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/policy/policies.h"
#include "router/request/request_metrics.h"
#include "router/router.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_workers.h"
#include "tests/support/letter_tokenizer.h"

namespace tandem {

// A client's end: what it read and how it ended.
class RecordingStream final : public ResponseStream {
 public:
  bool Send(const v1::GenerateResponse& response, Pace pace) override {
    EXPECT_FALSE(end.has_value()) << "an event after the end";
    if (pace == Pace::kLive && capacity-- == 0) return false;
    if (response.has_chunk()) Add(response.chunk());
    if (response.has_prompt_logprobs()) Add(response.prompt_logprobs());
    if (response.has_finish()) finishes.push_back(response.finish());
    if (response.has_summary()) summary = response.summary();
    return true;
  }
  void End(const absl::Status& status) override {
    EXPECT_FALSE(end.has_value()) << "a second end";
    end = status;
  }

  // The finish of choice `index`; it must have come.
  const v1::ChoiceFinish& FinishOf(int32_t index) const {
    for (const v1::ChoiceFinish& finish : finishes) {
      if (finish.index() == index) return finish;
    }
    ADD_FAILURE() << "choice " << index << " has no finish";
    return v1::ChoiceFinish::default_instance();
  }

  int capacity = 1000;                          // live events
  std::vector<int32_t> tokens;                  // of all choices, as they came
  std::map<int32_t, std::vector<int32_t>> ids;  // by choice
  std::map<int32_t, std::string> text;          // likewise
  std::vector<v1::TokenLogprobs> logprobs;
  std::vector<v1::TokenLogprobs> prompt_logprobs;
  int most_tokens = 0;  // of one chunk
  std::vector<v1::ChoiceFinish> finishes;
  std::optional<v1::Summary> summary;
  std::optional<absl::Status> end;

 private:
  void Add(const v1::PromptLogprobs& part) {
    EXPECT_TRUE(tokens.empty()) << "the prompt comes before the output";
    EXPECT_EQ(part.first(), static_cast<int>(prompt_logprobs.size()) + 1);
    prompt_logprobs.insert(prompt_logprobs.end(), part.tokens().begin(), part.tokens().end());
  }
  void Add(const v1::Chunk& chunk) {
    for (const v1::ChoiceFinish& finish : finishes) {
      EXPECT_NE(finish.index(), chunk.index()) << "a chunk after the choice's finish";
    }
    for (const int32_t id : chunk.token_ids()) {
      tokens.push_back(id);
      ids[chunk.index()].push_back(id);
    }
    text[chunk.index()] += chunk.text();
    most_tokens = std::max(most_tokens, chunk.token_ids_size());
    logprobs.insert(logprobs.end(), chunk.logprobs().begin(), chunk.logprobs().end());
  }
};

// A router among workers p0 and d0. The test is every worker and owns the time.
class RouterFixture : public testing::Test {
 protected:
  static constexpr auto kNetwork = CallEnd::Source::kNetwork;
  static constexpr auto kWorker = CallEnd::Source::kWorker;
  static constexpr auto kStop = v1::WorkerFinish::REASON_STOP;
  static constexpr auto kLength = v1::WorkerFinish::REASON_LENGTH;
  static constexpr auto kHandedOff = v1::WorkerFinish::REASON_HANDED_OFF;

  explicit RouterFixture(std::unique_ptr<RoutingPolicy> policy = NewLeastLoadedPolicy())
      : policy_(std::move(policy)) {
    Join("p0", v1::WORKER_ROLE_PREFILL);
    Join("d0", v1::WORKER_ROLE_DECODE);
    router_.Start();
    loop_.RunReady();
  }

  static RouterOptions Options() {
    RouterOptions options;
    options.limits.model = "sample";
    options.limits.vocab_size = 1000;
    options.limits.max_context_tokens = 100;
    options.limits.eos_token_ids = {999};
    options.limits.has_tokenizer = true;
    options.random_seed = 1;
    options.tokenizing.threads = 0;  // the loop tokenizes
    return options;
  }

  static v1::RegisterRequest Registration(const std::string& name, v1::WorkerRole role,
                                          uint64_t incarnation = 1) {
    v1::RegisterRequest request;
    request.set_name(name);
    request.set_incarnation(incarnation);
    request.set_role(role);
    request.set_address(name + ":1");
    request.set_model("sample");
    request.set_max_context_tokens(100);
    request.mutable_layout()->set_num_layers(2);
    request.mutable_layout()->set_block_tokens(16);
    request.mutable_layout()->set_dtype("bf16");
    request.set_data_address("tcp:" + name + ":2");
    request.set_wire_version(2);
    request.set_device("cpu");
    return request;
  }
  bool IsUsable(const std::string& name) const {
    const std::shared_ptr<const ClusterView> view = cluster_.View();
    return std::any_of(
        view->workers.begin(), view->workers.end(),
        [&name](const WorkerView& worker) { return worker.id.name == name && worker.usable(); });
  }
  void Join(const v1::RegisterRequest& request) {
    const absl::Status joined = cluster_.Register(request);
    ASSERT_TRUE(joined.ok()) << joined;
    loop_.RunReady();
  }
  // A later incarnation takes the name of a worker that has been silent.
  void Join(const std::string& name, v1::WorkerRole role, uint64_t incarnation = 1) {
    if (incarnation > 1 && IsUsable(name)) clock_.Advance(std::chrono::milliseconds(2001));
    left_.erase(name);
    Join(Registration(name, role, incarnation));
  }
  // Time goes by for a router that runs.
  void Pass(Duration time) {
    constexpr std::chrono::milliseconds kStep(500);
    for (; time > kStep; time -= kStep) {
      clock_.Advance(kStep);
      loop_.RunReady();
    }
    clock_.Advance(time);
    loop_.RunReady();
  }
  // The worker reports; why it is not ready, if it is not.
  void Beat(const std::string& name, const std::string& not_ready = "") {
    clock_.Advance(std::chrono::milliseconds(1));
    v1::WorkerLoad load;
    load.set_not_ready(not_ready);
    Report(name, load);
  }
  void Report(const std::string& name, const v1::WorkerLoad& load) {
    v1::HeartbeatRequest request;
    request.set_name(name);
    request.set_incarnation(1);
    request.set_leaving(left_.contains(name));
    *request.mutable_load() = load;
    ASSERT_TRUE(cluster_.Heartbeat(request).ok());
    loop_.RunReady();
  }
  // Once: it is leaving. Twice: it is gone.
  void Leave(const std::string& name) {
    left_.insert(name);
    cluster_.Deregister(name, 1);
    loop_.RunReady();
  }

  static v1::GenerateRequest Ask(v1::Route route = v1::ROUTE_DISAGGREGATED) {
    v1::GenerateRequest request;
    for (const int id : {1, 2, 3}) request.mutable_token_ids()->add_ids(id);
    request.set_max_tokens(4);
    request.set_route(route);
    return request;
  }

  RequestId Submit(const v1::GenerateRequest& request, TimePoint deadline = kNoDeadline) {
    const auto id = router_.Submit(request, deadline, stream_);
    EXPECT_TRUE(id.ok()) << id.status();
    loop_.RunReady();
    return id.ok() ? *id : RequestId();
  }

  // The worker of this call sends `event`.
  void Say(const std::string& call, const v1::WorkerEvent& event) {
    const auto stream = workers_.Find(call);
    ASSERT_NE(stream, nullptr) << call;
    stream->handlers.on_event(event);
    loop_.RunReady();
  }
  // The worker sends tokens of choice `index`, each with this log-probability if one is given.
  void Say(const std::string& call, const std::vector<int32_t>& ids, int32_t index = 0,
           std::optional<float> logprob = std::nullopt) {
    v1::WorkerEvent event;
    v1::WorkerTokens& tokens = *event.mutable_tokens();
    tokens.set_index(index);
    for (const int32_t id : ids) {
      tokens.add_token_ids(id);
      if (!logprob) continue;
      v1::TokenLogprobs& entry = *tokens.add_logprobs();
      entry.mutable_sampled()->set_token_id(id);
      entry.mutable_sampled()->set_logprob(*logprob);
    }
    tokens.mutable_stages()->set_prefill_us(1000);
    Say(call, event);
  }
  // The worker says that choice `index` has ended.
  void EndChoice(const std::string& call, int32_t index, v1::WorkerFinish::Reason reason) {
    v1::WorkerEvent event;
    event.mutable_choice_finish()->set_index(index);
    event.mutable_choice_finish()->set_reason(reason);
    Say(call, event);
  }
  // The worker says that it has done its part, and ends its stream.
  void Close(const std::string& call, v1::WorkerFinish::Reason reason) {
    v1::WorkerEvent event;
    event.mutable_finish()->set_reason(reason);
    event.mutable_finish()->mutable_kv()->set_raw_bytes(77);
    event.mutable_finish()->mutable_kv()->add_layers()->set_k_kv_bytes(33);
    event.mutable_finish()->set_cached_tokens(2);
    event.mutable_finish()->set_preemptions(1);
    Say(call, event);
    End(call, absl::OkStatus(), kWorker);
  }
  // Ends choice 0 and the stream, for a request with one choice.
  void Finish(const std::string& call, v1::WorkerFinish::Reason reason) {
    if (reason != kHandedOff) EndChoice(call, 0, reason);
    Close(call, reason);
  }
  void End(const std::string& call, const absl::Status& status, CallEnd::Source source) {
    const auto stream = workers_.Find(call);
    ASSERT_NE(stream, nullptr) << call;
    stream->handlers.on_end({status, source});
    loop_.RunReady();
  }
  void Reserved(uint64_t id = 5, std::chrono::microseconds queued = {}) {
    v1::ReserveResponse response;
    response.set_queued_us(queued.count());
    response.mutable_target()->set_reservation_id(id);
    response.mutable_target()->set_cached_tokens(48);
    workers_.reservations.back()->done({absl::OkStatus(), kWorker}, response);
    loop_.RunReady();
  }
  void RefuseReservation(const absl::Status& status, CallEnd::Source source = kWorker) {
    workers_.reservations.back()->done({status, source}, {});
    loop_.RunReady();
  }

  // The parts of a second router among the same workers.
  RouterParts Parts(const Tokenizer& tokenizer) { return Parts(tokenizer, workers_); }
  RouterParts Parts(const Tokenizer& tokenizer, WorkerClient& workers) {
    return {.tokenizer = &tokenizer,
            .cluster = cluster_,
            .admission = admission_,
            .ledger = ledger_,
            .policy = *policy_,
            .workers = workers,
            .loop = loop_,
            .clock = clock_,
            .resumes = counts_.resumes,
            .reroutes = counts_.reroutes,
            .routing = counts_.routing,
            .length_forecasts = length_forecasts_,
            .decisions = decisions_,
            .metrics = counts_.metrics,
            .proofs = &counts_.proofs};
  }

  void ExpectNothingLeft() {
    EXPECT_THAT(workers_.Open(), testing::IsEmpty());
    EXPECT_EQ(router_.Status().requests_in_flight(), 0);
    const std::shared_ptr<const ClusterView> view = cluster_.View();
    for (const WorkerView& worker : view->workers) {
      EXPECT_EQ(worker.charged.sequences, 0) << worker.id.name;
      EXPECT_EQ(worker.charged.prompt_tokens, 0) << worker.id.name;
      const WorkerLedger* const sent = ledger_.Find(worker.id);
      EXPECT_TRUE(sent == nullptr || sent->parts().empty()) << worker.id.name;
    }
  }
  void ExpectFailed(absl::StatusCode code, const std::string& says) {
    ASSERT_TRUE(stream_.end.has_value());
    EXPECT_EQ(stream_.end->code(), code) << *stream_.end;
    EXPECT_THAT(std::string(stream_.end->message()), testing::HasSubstr(says));
    ExpectNothingLeft();
  }

  // What a router counts of its requests.
  struct Counts {
    ResumeStats resumes;
    RerouteStats reroutes;
    RoutingStats routing{"least-loaded", {}};
    RequestMetrics metrics{Slo()};
    RouteProofs proofs;
  };

  std::set<std::string> left_;  // names of workers that report that they are leaving
  FakeClock clock_;
  const LetterTokenizer tokenizer_;
  EventLoop loop_{clock_, 16};
  Cluster cluster_{
      {.model = "sample", .lease = std::chrono::seconds(5), .heartbeat = std::chrono::seconds(1)},
      clock_};
  AdmissionControl admission_{{.max_in_flight = 8, .shedding = Shedding::kSlo}};
  RequestLedger ledger_{clock_};
  std::unique_ptr<RoutingPolicy> policy_;
  FakeWorkers workers_;
  RecordingStream stream_;
  Counts counts_;
  LengthForecasts length_forecasts_{"adaptive", NewAdaptiveLengthPredictor()};
  PredictionBook book_;
  DecisionLog decisions_{"least-loaded", book_};
  Router router_{Options(),
                 {.tokenizer = &tokenizer_,
                  .cluster = cluster_,
                  .admission = admission_,
                  .ledger = ledger_,
                  .policy = *policy_,
                  .workers = workers_,
                  .loop = loop_,
                  .clock = clock_,
                  .resumes = counts_.resumes,
                  .reroutes = counts_.reroutes,
                  .routing = counts_.routing,
                  .length_forecasts = length_forecasts_,
                  .decisions = decisions_,
                  .metrics = counts_.metrics,
                  .proofs = &counts_.proofs}};
};

}  // namespace tandem
