#include "bench/simulator/simulation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/status.h"
#include "bench/simulator/load_reports.h"
#include "router/explain/decision_log.h"
#include "router/output_length/length_forecasts.h"
#include "router/policy/policies.h"
#include "router/request/request_metrics.h"
#include "router/router.h"

namespace tandem::simulator {
namespace {

RouterOptions RouterOptionsOf(const SimulationOptions& options) {
  RouterOptions router;
  router.limits.model = options.fleet.front().model->model;
  router.limits.vocab_size = kVocabulary;
  for (const WorkerConfig& worker : options.fleet) {
    router.limits.max_context_tokens =
        std::max(router.limits.max_context_tokens, worker.model->max_context_tokens);
  }
  router.limits.default_slo = options.slo;
  router.random_seed = options.seed;
  router.tokenizing.threads = 0;  // prompts are token ids
  return router;
}

int32_t TokensPerChunk(const SimulationOptions& options, const loadgen::Schedule& schedule) {
  int64_t tokens = 0;
  for (const loadgen::ScheduledRequest& request : schedule.requests) {
    tokens += request.output_tokens;
  }
  return static_cast<int32_t>((tokens + options.most_arrivals - 1) / options.most_arrivals);
}

// A router with everything that it works with but its workers.
class SimulatedRouter {
 public:
  static absl::StatusOr<std::unique_ptr<SimulatedRouter>> New(const SimulationOptions& options,
                                                              Timeline& timeline,
                                                              SimulatedNetwork& network) {
    ASSIGN_OR_RETURN(std::unique_ptr<LengthForecasts> lengths,
                     LengthForecasts::New(options.predictor));
    auto made = std::unique_ptr<SimulatedRouter>(
        new SimulatedRouter(options, timeline, std::move(lengths)));
    RETURN_IF_ERROR(made->Start(options, timeline, network));
    return made;
  }

  EventLoop& loop() { return loop_; }
  Cluster& cluster() { return cluster_; }
  Router& router() { return *router_; }
  PrefixIndex* prefixes() { return prefixes_.get(); }
  const DecisionLog& decisions() const { return decisions_; }

 private:
  SimulatedRouter(const SimulationOptions& options, const Timeline& timeline,
                  std::unique_ptr<LengthForecasts> lengths)
      : loop_(timeline, kMostTasks),
        cluster_({.model = options.fleet.front().model->model,
                  .lease = options.lease,
                  .heartbeat = options.heartbeat},
                 timeline),
        admission_({.max_in_flight = options.max_in_flight, .shedding = options.shedding}),
        ledger_(timeline),
        lengths_(std::move(lengths)),
        decisions_(options.policy, predictions_),
        routing_(options.policy, options.slo),
        metrics_(options.slo),
        prefixes_(options.limits.report_cache ? std::make_unique<PrefixIndex>(kPrefixIndexBytes)
                                              : nullptr) {}

  absl::Status Start(const SimulationOptions& options, const Timeline& timeline,
                     SimulatedNetwork& network) {
    const PolicyParts parts{.clock = timeline, .ledger = ledger_, .errors = &predictions_};
    ASSIGN_OR_RETURN(policy_, NewRoutingPolicy(options.policy, parts));
    router_ = std::make_unique<Router>(RouterOptionsOf(options),
                                       RouterParts{.cluster = cluster_,
                                                   .admission = admission_,
                                                   .ledger = ledger_,
                                                   .policy = *policy_,
                                                   .workers = network,
                                                   .loop = loop_,
                                                   .clock = timeline,
                                                   .resumes = resumes_,
                                                   .reroutes = reroutes_,
                                                   .routing = routing_,
                                                   .length_forecasts = *lengths_,
                                                   .decisions = decisions_,
                                                   .metrics = metrics_,
                                                   .prefixes = prefixes_.get()});
    return absl::OkStatus();
  }

  static constexpr size_t kMostTasks = 1 << 20;
  static constexpr size_t kPrefixIndexBytes = size_t{256} << 20;

  EventLoop loop_;
  Cluster cluster_;
  AdmissionControl admission_;
  RequestLedger ledger_;
  const std::unique_ptr<LengthForecasts> lengths_;
  ResumeStats resumes_;
  RerouteStats reroutes_;
  PredictionBook predictions_;
  DecisionLog decisions_;
  RoutingStats routing_;
  RequestMetrics metrics_;
  const std::unique_ptr<PrefixIndex> prefixes_;
  std::unique_ptr<RoutingPolicy> policy_;
  std::unique_ptr<Router> router_;
};

// A fleet, its router and its clients, for one run.
class World {
 public:
  World(const SimulationOptions& options, const loadgen::Schedule& schedule)
      : options_(options),
        schedule_(schedule),
        network_(options.network, timeline_, digest_),
        tokens_per_chunk_(TokensPerChunk(options, schedule)) {}
  ~World() {
    timeline_.Clear();
    network_.SetEndListener(nullptr);  // workers that end their requests below reach no one
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  absl::Status Start(loadgen::RunCounts& counts) {
    ASSIGN_OR_RETURN(router_, SimulatedRouter::New(options_, timeline_, network_));
    reports_ = std::make_unique<LoadReports>(LoadReports::Parts{.timeline = timeline_,
                                                                .cluster = router_->cluster(),
                                                                .network = network_,
                                                                .prefixes = router_->prefixes()});
    RETURN_IF_ERROR(StartWorkers());
    for (const Disturbance& one : options_.disturbances) {
      timeline_.At(timeline_.start() + one.at, [this, &one] { Disturb(one); });
    }
    router_->router().Start();
    clients_ =
        std::make_unique<SimulatedClients>(SimulatedClients::Parts{.timeline = timeline_,
                                                                   .router = router_->router(),
                                                                   .network = network_,
                                                                   .digest = digest_,
                                                                   .schedule = schedule_,
                                                                   .counts = counts},
                                           options_.run,
                                           ClientOptions{.hop = options_.network.hop,
                                                         .route = options_.route,
                                                         .routes = options_.routes,
                                                         .tokens_per_chunk = tokens_per_chunk_});
    clients_->Start();
    return absl::OkStatus();
  }

  void Run() {
    while (!clients_->done()) {
      const TimePoint timer = router_->loop().RunReady();
      const TimePoint next = timeline_.NextTime();
      TANDEM_CHECK(std::min(timer, next) < kNoDeadline, "requests wait, and nothing will happen");
      if (timer < next) {
        timeline_.AdvanceTo(timer);
      } else {
        timeline_.RunNext();
      }
    }
    router_->loop().RunReady();
  }

  SimulationResult Take() {
    SimulationResult result{.run = clients_->Take(),
                            .router = router_->router().Status(),
                            .digest = digest_.value(),
                            .events = digest_.events(),
                            .has_each_token = tokens_per_chunk_ == 1};
    for (const auto& worker : workers_) {
      result.workers.push_back({.name = worker->config().name,
                                .role = worker->config().role,
                                .usage = worker->core().usage,
                                .stats = worker->stats()});
    }
    if (options_.explain) Explain(result);
    return result;
  }

 private:
  absl::Status StartWorkers() {
    std::vector<SimulatedWorker*> workers;
    for (const WorkerConfig& config : options_.fleet) {
      workers_.push_back(std::make_unique<SimulatedWorker>(
          config, options_.limits, timeline_, digest_,
          [this](const std::string& address, ReservationId id) { return DeliverKv(address, id); }));
      workers.push_back(workers_.back().get());
      network_.Add(*workers.back());
      by_address_.emplace(workers.back()->data_address(), workers.back());
    }
    network_.SetEndListener([this](SimulatedWorker& worker) { reports_->Nudge(worker); });
    return reports_->Register(workers);
  }

  void Explain(SimulationResult& result) const {
    for (const loadgen::RequestRecord& record : result.run.records) {
      v1::ExplainRequest question;
      question.set_request_id(record.id);
      const absl::StatusOr<v1::ExplainResponse> answer =
          router_->decisions().Explain(question, timeline_.Now());
      if (answer.ok()) result.explanations.push_back(answer->requests(0));
    }
  }

  SimulatedWorker& Find(const std::string& name) {
    return **std::ranges::find_if(
        workers_, [&name](const auto& worker) { return worker->config().name == name; });
  }

  bool DeliverKv(const std::string& address, ReservationId id) {
    SimulatedWorker& worker = *by_address_.at(address);
    if (worker.dead()) return false;
    worker.KvArrived(id);
    return true;
  }

  void Disturb(const Disturbance& one) {
    SimulatedWorker& worker = Find(one.worker);
    switch (one.kind) {
      case Disturbance::Kind::kLose:
        return network_.Lose(worker);
      case Disturbance::Kind::kLeave:
        return reports_->Leave(worker);
      case Disturbance::Kind::kSlow:
        return worker.SetSlowdown(one.factor);
    }
  }

  const SimulationOptions& options_;
  const loadgen::Schedule& schedule_;
  Timeline timeline_;
  Digest digest_;
  SimulatedNetwork network_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  absl::flat_hash_map<std::string, SimulatedWorker*> by_address_;
  std::unique_ptr<SimulatedRouter> router_;
  std::unique_ptr<LoadReports> reports_;
  const int32_t tokens_per_chunk_;
  std::unique_ptr<SimulatedClients> clients_;
};

absl::Status CheckLimits(const SimulationOptions& options) {
  for (const WorkerConfig& worker : options.fleet) {
    RETURN_IF_ERROR(OptionsOf(options.limits, *worker.model).Validate());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const SimulationOptions& options,
                                          const loadgen::Schedule& schedule,
                                          loadgen::RunCounts& counts) {
  if (options.fleet.empty()) return InvalidArgument("the fleet has no workers");
  if (!options.routes.empty() && options.routes.size() != schedule.requests.size()) {
    return InvalidArgument("{} routes for {} requests", options.routes.size(),
                           schedule.requests.size());
  }
  RETURN_IF_ERROR(CheckLimits(options));
  World world(options, schedule);
  RETURN_IF_ERROR(world.Start(counts));
  world.Run();
  return world.Take();
}

}  // namespace tandem::simulator
