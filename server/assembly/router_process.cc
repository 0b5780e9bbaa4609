#include "server/assembly/router_process.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "router/admission/admission_control.h"
#include "router/client/grpc_worker_client.h"
#include "router/client/traced_worker_client.h"
#include "router/policy/policies.h"
#include "server/access/access_control.h"
#include "server/assembly/process_tls.h"
#include "server/assembly/router_options.h"
#include "server/assembly/router_ports.h"
#include "server/openai/model_files.h"
#include "server/openai/service.h"
#include "server/tracing/process_tracing.h"

namespace tandem {
namespace {

constexpr size_t kMaxLoopTasks = 4096;
constexpr Duration kLeastFlushTime = std::chrono::milliseconds(500);
constexpr Duration kAccessCheckInterval = std::chrono::seconds(2);

// Checks from now on every kAccessCheckInterval whether the access file has changed.
void WatchAccess(EventLoop& loop, AccessControl& access) {
  loop.PostAt(std::chrono::steady_clock::now() + kAccessCheckInterval, [&loop, &access] {
    access.ReloadIfChanged();
    WatchAccess(loop, access);
  });
}

openai::ModelCard CardOf(const RequestLimits& limits, const openai::ModelFiles& files) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.name = limits.model,
          .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
          .eos_token_ids = limits.eos_token_ids,
          .tokenizer_info = files.tokenizer_info};
}

// The parts that decide which clients are admitted.
struct ClientAdmission {
  explicit ClientAdmission(const RouterTuning& tuning)
      : control({.max_in_flight = tuning.max_in_flight, .shedding = *ParseShedding(tuning.shed)}) {}

  absl::Status OpenAccess(const std::string& file, const Clock& clock) {
    if (file.empty()) return absl::OkStatus();
    const auto set_tenants = [this, &clock](const TenantPolicy& tenants) {
      control.SetTenants(std::make_shared<const TenantPolicy>(tenants), clock.Now());
    };
    auto opened = AccessControl::Open(file, set_tenants);
    RETURN_IF_ERROR(Annotate(opened.status(), "--access-file"));
    access = std::move(*opened);
    return absl::OkStatus();
  }

  AdmissionControl control;
  std::unique_ptr<AccessControl> access;  // null where no API keys are required
};

// The parts that decide where a request is placed, and remember the decisions.
struct RequestRouting {
  RequestRouting(const RouterTuning& tuning, const Slo& slo, const Clock& clock)
      : ledger(clock),
        stats(tuning.policy, slo),
        prefixes(tuning.prefix_index_bytes == 0
                     ? nullptr
                     : std::make_unique<PrefixIndex>(tuning.prefix_index_bytes)),
        sessions(tuning.session_affinity == "on" ? std::make_unique<SessionTable>() : nullptr),
        decisions(tuning.policy, predictions) {}

  absl::Status Open(const RouterTuning& tuning, const Clock& clock) {
    ASSIGN_OR_RETURN(options, PolicyOptionsFor(tuning));
    const PolicyParts parts{
        .clock = clock, .ledger = ledger, .errors = &predictions, .options = options};
    ASSIGN_OR_RETURN(policy, NewRoutingPolicy(tuning.policy, parts));
    ASSIGN_OR_RETURN(length_forecasts, LengthForecasts::New(tuning.output_predictor));
    return absl::OkStatus();
  }

  RequestLedger ledger;
  PredictionBook predictions;
  PolicyOptions options;
  std::unique_ptr<RoutingPolicy> policy;
  RoutingStats stats;
  std::unique_ptr<LengthForecasts> length_forecasts;
  std::unique_ptr<PrefixIndex> prefixes;   // null where prefix hits are not predicted
  std::unique_ptr<SessionTable> sessions;  // null where sessions have no influence on the placement
  DecisionLog decisions;
};

// The known workers, and the clients to call them.
struct KnownWorkers {
  KnownWorkers(const RouterTuning& tuning, const std::string& model, const Clock& clock)
      : cluster(ClusterOptionsFor(tuning, model), clock) {}

  Cluster cluster;
  std::optional<GrpcWorkerClient> client;
  std::optional<TracedWorkerClient> traced_client;
};

// The parts that serve OpenAI's and Anthropic's API.
struct Chats {
  const openai::ModelFiles files;
  std::optional<openai::Service> service;
};

// Statistics of how requests ended.
struct RequestOutcomes {
  explicit RequestOutcomes(const Slo& slo) : requests(slo) {}

  ResumeStats resumes;
  RerouteStats reroutes;
  RequestMetrics requests;
  RouteProofs proofs;
  ProcessTracing tracing;
};

}  // namespace

// Members are constructed in this order and destroyed in reverse.
struct RouterProcess::Parts {
  Parts(RouterProcessOptions with, ServedModel model);
  ~Parts() { EndLoop(); }

  absl::Status Open();
  openai::ServiceParts ServiceParts();
  void RunLoop();
  void EndLoop();

  const RouterProcessOptions options;
  const SteadyClock clock;
  ProcessTls tls;
  const ServedModel served;
  const RouterOptions router_options;
  ClientAdmission admission;
  RequestRouting routing;
  const std::shared_ptr<EventLoop> loop = std::make_shared<EventLoop>(clock, kMaxLoopTasks);
  KnownWorkers workers;
  AnswerBuffers answers;
  RequestOutcomes outcomes;
  Chats chats;  // outlives the router, whose destructor waits for threads that use it
  std::unique_ptr<Router> router;
  std::unique_ptr<RouterPorts> ports;
  std::thread loop_thread;
};

RouterProcess::Parts::Parts(RouterProcessOptions with, ServedModel model)
    : options(std::move(with)),
      served(std::move(model)),
      router_options(RouterOptionsFor(options, served)),
      admission(options.tuning),
      routing(options.tuning, router_options.limits.default_slo, clock),
      workers(options.tuning, served.name, clock),
      answers(options.tuning.answer_buffer_bytes),
      outcomes(router_options.limits.default_slo),
      chats{.files = openai::LoadModelFiles(options.model_dir, options.tuning.parsers),
            .service = {}} {}

absl::Status RouterProcess::Parts::Open() {
  RETURN_IF_ERROR(tls.OpenForRouter(options.tls, options.require_client_certificates
                                                     ? ClientCertificates::kRequired
                                                     : ClientCertificates::kOptional));
  RETURN_IF_ERROR(admission.OpenAccess(options.access_file, clock));
  RETURN_IF_ERROR(routing.Open(options.tuning, clock));
  ASSIGN_OR_RETURN(outcomes.tracing, ProcessTracing::Open(options.trace, {.role = "router",
                                                                          .name = "router",
                                                                          .build = options.build}));
  workers.client.emplace(loop, tls.source);
  workers.traced_client.emplace(*workers.client, clock);
  router = std::make_unique<Router>(
      router_options, RouterParts{.tokenizer = served.tokenizer.get(),
                                  .cluster = workers.cluster,
                                  .admission = admission.control,
                                  .ledger = routing.ledger,
                                  .policy = *routing.policy,
                                  .workers = *workers.traced_client,
                                  .loop = *loop,
                                  .clock = clock,
                                  .resumes = outcomes.resumes,
                                  .reroutes = outcomes.reroutes,
                                  .routing = routing.stats,
                                  .length_forecasts = *routing.length_forecasts,
                                  .decisions = routing.decisions,
                                  .metrics = outcomes.requests,
                                  .resume_limits = {.max_resumes = options.tuning.max_resumes},
                                  .answers = &answers,
                                  .prefixes = routing.prefixes.get(),
                                  .sessions = routing.sessions.get(),
                                  .proofs = &outcomes.proofs,
                                  .tracer = &outcomes.tracing.tracer(),
                                  .log_requests = options.tuning.log_requests});
  chats.service.emplace(ServiceParts());
  if (admission.access != nullptr) WatchAccess(*loop, *admission.access);
  ASSIGN_OR_RETURN(ports, RouterPorts::Open({.options = options,
                                             .router = *router,
                                             .loop = *loop,
                                             .cluster = workers.cluster,
                                             .clock = clock,
                                             .requests = outcomes.requests,
                                             .tracing = outcomes.tracing,
                                             .service = *chats.service,
                                             .answers = answers,
                                             .tls = tls,
                                             .proofs = outcomes.proofs,
                                             .prefixes = routing.prefixes.get(),
                                             .access = admission.access.get()}));
  return absl::OkStatus();
}

openai::ServiceParts RouterProcess::Parts::ServiceParts() {
  const Tokenizer* const tokenizer = served.tokenizer.get();
  return {.router = *router,
          .loop = *loop,
          .clock = clock,
          .max_in_flight = options.tuning.max_in_flight,
          .tokenizer = tokenizer,
          .chat = chats.files.chat.get(),
          .no_chat = chats.files.no_chat,
          .reading = openai::NewAnswerReading(chats.files.markup, tokenizer),
          .model = CardOf(router_options.limits, chats.files),
          .version = options.build};
}

void RouterProcess::Parts::RunLoop() {
  router->Start();
  loop_thread = std::thread([this] {
    NameThisThread("router");
    loop->Run();
  });
}

void RouterProcess::Parts::EndLoop() {
  if (!loop_thread.joinable()) return;
  loop->Stop();
  loop_thread.join();
}

absl::StatusOr<std::unique_ptr<RouterProcess>> RouterProcess::Start(RouterProcessOptions options) {
  RETURN_IF_ERROR(CheckLease(options.tuning));
  ASSIGN_OR_RETURN(ServedModel served, LoadServedModel(options));
  auto parts = std::make_unique<Parts>(std::move(options), std::move(served));
  RETURN_IF_ERROR(parts->Open());
  parts->RunLoop();
  return std::unique_ptr<RouterProcess>(new RouterProcess(std::move(parts)));
}

RouterProcess::RouterProcess(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

RouterProcess::~RouterProcess() = default;

std::string RouterProcess::address() const { return parts_->ports->address(); }

const std::string& RouterProcess::model() const { return parts_->served.name; }

void RouterProcess::Drain(TimePoint deadline) {
  parts_->ports->SetDraining();
  absl::Notification drained;
  parts_->router->Drain(deadline, [&drained] { drained.Notify(); });
  drained.WaitForNotification();
  // A short time for the last answers to be written; with more time, gRPC would wait for idle
  // clients to hang up.
  parts_->ports->Close(std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
  parts_->EndLoop();
  // Spans of the last requests get kLeastFlushTime even when draining has used up all the time.
  parts_->outcomes.tracing.Shutdown(
      std::max(deadline, std::chrono::steady_clock::now() + kLeastFlushTime));
}

}  // namespace tandem
