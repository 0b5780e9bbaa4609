#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/synchronization/notification.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "model/checkpoint/model_config.h"
#include "model/tokenizer/tokenizer.h"
#include "router/client/grpc_worker_client.h"
#include "router/policy/policies.h"
#include "router/request/request_metrics.h"
#include "router/router.h"
#include "server/access/access_control.h"
#include "server/access/http_access.h"
#include "server/admin/explain_page.h"
#include "server/admin/field_metrics.h"
#include "server/admin/http_metrics.h"
#include "server/admin/metrics_page.h"
#include "server/admin/metrics_server.h"
#include "server/admin/router_health.h"
#include "server/anthropic/endpoints.h"
#include "server/assembly/classic_parameters.h"
#include "server/assembly/model_name.h"
#include "server/assembly/process_tls.h"
#include "server/assembly/simulated_worker.h"
#include "server/commands/child_process.h"
#include "server/commands/commands.h"
#include "server/commands/flags.h"
#include "server/commands/http_flags.h"
#include "server/commands/number_flag.h"
#include "server/commands/router_flags.h"
#include "server/commands/server_limit_flags.h"
#include "server/commands/signals.h"
#include "server/commands/tls_flags.h"
#include "server/commands/version.h"
#include "server/http/http_server.h"
#include "server/openai/model_files.h"
#include "server/openai/service.h"
#include "server/page/page_routes.h"
#include "server/services/cluster_service.h"
#include "server/services/connection_acceptor.h"
#include "server/services/descriptor_limit.h"
#include "server/services/grpc_server.h"
#include "server/services/inference_service.h"
#include "server/services/message_limit.h"

namespace tandem {
namespace {

constexpr size_t kMaxLoopTasks = 4096;
constexpr const char* kInferenceName = v1::Inference::service_full_name();

struct RouterFlags {
  std::string model_dir;
  std::string simulated;  // parameter file
  std::string model_name;
  std::string host = "127.0.0.1";
  uint16_t port = kDefaultPort;
  RouterTuning tuning;
  ServerLimits server;
  std::optional<uint16_t> metrics_port;
  std::optional<uint16_t> http_port;
  HttpTuning http;
  std::string access_file;  // empty: no API keys, and no limits of tenants
  TlsFiles tls;
  std::string tls_clients = "optional";
  int drain_seconds = 30;
  std::string log_level = "info";
  int ready_fd = -1;
};

ClientCertificates ClientCertificatesOf(const RouterFlags& flags) {
  return flags.tls_clients == "require" ? ClientCertificates::kRequired
                                        : ClientCertificates::kOptional;
}

uint64_t RandomSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// What is served, as far as a router needs to know it.
struct ServedModel {
  std::string name;
  ModelConfig config;
};

absl::StatusOr<ServedModel> ServedBy(const RouterFlags& flags) {
  ServedModel served;
  if (!flags.simulated.empty()) {
    ASSIGN_OR_RETURN(const SimulatedDevice device,
                     LoadSimulatedDevice(flags.simulated, flags.model_dir));
    ASSIGN_OR_RETURN(served.name, SimulatedModelName(device, flags.model_name));
    served.config = StandInFor(device);
    return served;
  }
  if (flags.model_dir.empty()) {
    return InvalidArgument("--model is missing: give a directory with config.json");
  }
  served.name = flags.model_name.empty() ? ModelNameFor(flags.model_dir) : flags.model_name;
  ASSIGN_OR_RETURN(served.config, LoadModelConfig(flags.model_dir));
  return served;
}

Slo SloOf(const RouterTuning& tuning) {
  Slo slo;
  if (tuning.ttft_slo_ms) slo.ttft = ModelTime(*tuning.ttft_slo_ms);
  if (tuning.tpot_slo_ms) slo.tpot = ModelTime(*tuning.tpot_slo_ms);
  return slo;
}

RouterOptions MakeRouterOptions(const RouterFlags& flags, const ServedModel& served,
                                const Tokenizer* tokenizer) {
  RouterOptions options;
  options.limits.model = served.name;
  options.limits.vocab_size = served.config.vocab_size;
  options.limits.max_context_tokens = served.config.max_position_embeddings;
  options.limits.eos_token_ids = served.config.eos_token_ids;
  options.limits.has_tokenizer = tokenizer != nullptr;
  if (tokenizer != nullptr) options.limits.max_bytes_per_token = tokenizer->MaxBytesPerToken();
  options.limits.max_choices = flags.tuning.max_choices;
  options.limits.default_slo = SloOf(flags.tuning);
  options.limits.default_kv.quality =
      KvQualityFromName(flags.tuning.quality).value_or(KvQuality::kExact);
  if (flags.tuning.evict != "none") {
    const absl::StatusOr<TokenEviction> eviction = ParseTokenEviction(flags.tuning.evict);
    if (eviction.ok()) options.limits.default_kv.eviction = *eviction;  // the flag was checked
  }
  options.max_request_time = std::chrono::seconds(flags.tuning.max_request_seconds);
  options.tokenizing.threads = flags.tuning.tokenize_threads;
  options.tokenizing.max_long_text_bytes = flags.tuning.tokenize_queue_bytes;
  options.random_seed = RandomSeed();
  options.version = kVersion;
  return options;
}

// A model without tokenizer.json is served by token ids; one whose file is wrong is not served.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerIfAny(const std::string& directory) {
  if (directory.empty()) return nullptr;
  auto tokenizer = LoadTokenizer(directory);
  if (absl::IsNotFound(tokenizer.status())) {
    LogWarn("{}: prompts must be token ids", std::string(tokenizer.status().message()));
    return std::unique_ptr<Tokenizer>();
  }
  return tokenizer;
}

// What clients of a router connect to.
struct FrontDoors {
  GrpcServer& grpc;
  RouterHealth& health;
  HttpServer* http;  // null: none
};

openai::ModelCard CardOf(const RequestLimits& limits, const openai::ModelFiles& files) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.name = limits.model,
          .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
          .eos_token_ids = limits.eos_token_ids,
          .tokenizer_info = files.tokenizer_info};
}

openai::ServiceParts PartsOf(const RouterTuning& tuning, const RouterOptions& options,
                             const openai::ModelFiles& files, const Tokenizer* tokenizer,
                             Router& router, EventLoop& loop, const Clock& clock) {
  return {.router = router,
          .loop = loop,
          .clock = clock,
          .max_in_flight = tuning.max_in_flight,
          .tokenizer = tokenizer,
          .chat = files.chat.get(),
          .no_chat = files.no_chat,
          .reading = openai::NewAnswerReading(files.markup, tokenizer),
          .model = CardOf(options.limits, files),
          .version = kVersion};
}

// Lets requests end until the deadline, fails the rest and ends the loop.
void Drain(Router& router, EventLoop& loop, const FrontDoors& doors, TimePoint deadline) {
  doors.health.SetDraining();
  doors.grpc.SetHealth(GrpcServer::Health::kNotServing);
  absl::Notification drained;
  router.Drain(deadline, [&drained] { drained.Notify(); });
  drained.WaitForNotification();
  // Last words are being written. Not longer: gRPC would wait for idle clients to hang up, too.
  const TimePoint end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  if (doors.http != nullptr) doors.http->Drain(end);
  doors.grpc.Shutdown(end);
  loop.Stop();
}

// A worker whose report is late by one is not gone.
constexpr int kLeastReportsPerLease = 2;

absl::Status CheckLease(const RouterTuning& tuning) {
  if (tuning.lease_ms / kLeastReportsPerLease >= tuning.heartbeat_ms) return absl::OkStatus();
  return InvalidArgument(
      "--lease-ms {}: workers report every --heartbeat-ms {}, and would be taken for gone: give at "
      "least {} times that",
      tuning.lease_ms, tuning.heartbeat_ms, kLeastReportsPerLease);
}

using StatusSource = std::function<v1::GetStatusResponse()>;

// `http` is set once that server has started.
AdminPages PagesOf(const StatusSource& status, const RequestMetrics& requests,
                   const RouterHealth& health, const std::atomic<const HttpServer*>& http) {
  const auto metrics = [status, &requests, &http] {
    const v1::GetStatusResponse now = status();
    std::vector<MetricFamily> all = StatusMetrics(now);
    const auto add = [&all](std::vector<MetricFamily> families) {
      std::move(families.begin(), families.end(), std::back_inserter(all));
    };
    add({RequestEnds(requests)});
    add(RouterFieldMetrics(now, requests));
    if (const HttpServer* const server = http) add(HttpMetrics(server->use()));
    return all;
  };
  return {.metrics = metrics,
          .live = [&health] { return health.Live(); },
          .ready = [&health] { return health.Ready(); }};
}

// Null where none was asked for.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetrics(const RouterFlags& flags,
                                                         const AdminPages& pages) {
  if (!flags.metrics_port) return nullptr;
  ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> metrics,
                   StartMetricsServer(flags.host, *flags.metrics_port, pages));
  LogInfo("metrics at=http://{}/metrics", HostPortText(flags.host, metrics->port()));
  return metrics;
}

// HTTPS has the files of all ports unless it has its own.
HttpTlsFiles HttpFiles(const RouterFlags& flags) {
  HttpTlsFiles files = flags.http.tls;
  if (files.cert.empty() && files.key.empty()) {
    files.cert = flags.tls.cert;
    files.key = flags.tls.key;
  }
  if (ClientCertificatesOf(flags) == ClientCertificates::kRequired) files.client_ca = flags.tls.ca;
  return files;
}

// Who may use the ports of a router.
struct PortGuards {
  const ProcessTls& tls;
  AccessControl* access;  // null: no API keys are asked for
};

void AddPaths(const std::vector<HttpRoute>& routes, std::set<std::string>& paths) {
  for (const HttpRoute& route : routes) paths.insert(route.path);
}

// Null where none was asked for.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeHttp(const RouterFlags& flags,
                                                      const AdminPages& pages, Router& router,
                                                      const openai::Service& service,
                                                      AnswerBuffers& answers,
                                                      const PortGuards& guards) {
  if (!flags.http_port) return nullptr;
  HttpServerOptions options = {
      .host = flags.host,
      .port = *flags.http_port,
      .tls = HttpFiles(flags),
      .tls_refusals = guards.tls.refusals.get(),
      .io_threads = flags.http.threads,
      .max_connections = flags.server.max_connections,
      .max_body_bytes = flags.http.max_body_bytes,
      .max_total_body_bytes = flags.http.max_total_body_bytes,
      .idle_timeout = std::chrono::seconds(flags.http.idle_seconds),
      .max_queued_bytes = flags.tuning.stream_buffer_bytes,
      .max_reading_time = std::chrono::seconds(flags.tuning.max_request_seconds),
      .answers = &answers};
  std::vector<HttpRoute> routes = AdminRoutes(pages);
  std::vector<HttpRoute> open = HealthRoutes(pages, kVersion);
  for (HttpRoute& route : service.Routes()) routes.push_back(std::move(route));
  for (HttpRoute& route : anthropic::Routes(service.parts())) routes.push_back(std::move(route));
  routes.push_back(ExplainRoute([&router](v1::ExplainRequest request, Explained done) {
    router.Explain(std::move(request), std::move(done));
  }));
  if (!flags.http.no_page) {
    for (HttpRoute& route : PageRoutes(service.model(), routes)) open.push_back(std::move(route));
  }
  if (guards.access != nullptr) {
    std::set<std::string> paths = {"/healthz", "/livez", "/readyz"};
    AddPaths(open, paths);
    options.authorize = HttpAuthorizer(*guards.access, std::move(paths));
  }
  for (HttpRoute& route : open) routes.push_back(std::move(route));
  auto server = HttpServer::Start(options, std::move(routes));
  if (absl::IsUnavailable(server.status())) {
    return Unavailable("choose another --http-port: {}", std::string(server.status().message()));
  }
  RETURN_IF_ERROR(server.status());
  LogInfo("http at={}://{}", options.tls.cert.empty() ? "http" : "https",
          HostPortText(flags.host, (*server)->port()));
  return server;
}

ClusterOptions MakeClusterOptions(const RouterTuning& tuning, const RouterOptions& router) {
  return {.model = router.limits.model,
          .lease = std::chrono::milliseconds(tuning.lease_ms),
          .heartbeat = std::chrono::milliseconds(tuning.heartbeat_ms),
          .max_workers = tuning.max_workers};
}

absl::StatusOr<PolicyOptions> MakePolicyOptions(const RouterTuning& tuning) {
  PolicyOptions options = tuning.policy_options;
  if (tuning.classic_parameters.empty()) return options;
  ASSIGN_OR_RETURN(options.classic, LoadClassicParameters(tuning.classic_parameters));
  return options;
}

// Null where no prefix hits are to be predicted.
std::unique_ptr<PrefixIndex> NewPrefixIndex(const RouterTuning& tuning) {
  if (tuning.prefix_index_bytes == 0) return nullptr;
  return std::make_unique<PrefixIndex>(tuning.prefix_index_bytes);
}

// Null where requests of one session are to be placed like others.
std::unique_ptr<SessionTable> NewSessionTable(const RouterTuning& tuning) {
  return tuning.session_affinity == "on" ? std::make_unique<SessionTable>() : nullptr;
}

// Of one heartbeat: their bytes take at most half of what a message may have.
uint32_t MostCacheChanges(const RouterTuning& tuning) {
  constexpr uint64_t kBytesPerChange = 8;
  return static_cast<uint32_t>(std::min<uint64_t>(PrefixIndex::kMostChanges,
                                                  tuning.max_message_bytes / 2 / kBytesPerChange));
}

constexpr Duration kAccessCheckInterval = std::chrono::seconds(2);

// Takes changes of the access file from now on.
void WatchAccess(EventLoop& loop, AccessControl& access) {
  loop.PostAt(std::chrono::steady_clock::now() + kAccessCheckInterval, [&loop, &access] {
    access.ReloadIfChanged();
    WatchAccess(loop, access);
  });
}

// Null where no file was given.
absl::StatusOr<std::unique_ptr<AccessControl>> OpenAccess(const RouterFlags& flags,
                                                          AdmissionControl& admission,
                                                          const Clock& clock) {
  if (flags.access_file.empty()) return nullptr;
  auto access =
      AccessControl::Open(flags.access_file, [&admission, &clock](const TenantPolicy& tenants) {
        admission.SetTenants(std::make_shared<const TenantPolicy>(tenants), clock.Now());
      });
  RETURN_IF_ERROR(Annotate(access.status(), "--access-file"));
  return access;
}

// Serves until SIGTERM or SIGINT, then drains.
void RunUntilTerminated(const RouterFlags& flags, const std::string& address,
                        const std::string& model, Router& router, EventLoop& loop,
                        const FrontDoors& doors) {
  router.Start();
  std::thread loop_thread([&loop] {
    NameThisThread("router");
    loop.Run();
  });
  LogInfo("router ready address={} model={}", address, model);
  TellReady(flags.ready_fd, address);
  WaitForTermination();
  LogInfo("draining seconds={}", flags.drain_seconds);
  Drain(router, loop, doors,
        std::chrono::steady_clock::now() + std::chrono::seconds(flags.drain_seconds));
  loop_thread.join();
  LogInfo("ended");
}

// What is asked about a router's state while it serves.
struct Observed {
  const Cluster& cluster;
  const Clock& clock;
  const RequestMetrics& requests;
};

// Takes clients and workers until the process is to end. `answers` are counted by `router`.
absl::Status ServePorts(const RouterFlags& flags, const openai::Service& service, Router& router,
                        EventLoop& loop, ClusterService& cluster_service, AnswerBuffers& answers,
                        const Observed& observed, const PortGuards& guards) {
  const RouterTuning& tuning = flags.tuning;
  ASSIGN_OR_RETURN(const std::unique_ptr<ConnectionAcceptor> acceptor,
                   ConnectionAcceptor::Listen(flags.host, flags.port, flags.server));
  const auto add_process = [&acceptor, &guards](v1::GetStatusResponse& status) {
    if (guards.access != nullptr) *status.mutable_access() = guards.access->Use();
    *status.mutable_connections() = acceptor->use();
    guards.tls.Report(*status.mutable_tls_refusals());
    status.set_log_lines_dropped(LogLinesDropped());
  };
  InferenceService inference(router, loop, answers,
                             {.max_message_bytes = tuning.max_message_bytes,
                              .max_queued_bytes = tuning.stream_buffer_bytes,
                              .max_reading_time = std::chrono::seconds(tuning.max_request_seconds),
                              .access = guards.access,
                              .add_process = add_process});
  ASSIGN_OR_RETURN(
      const std::unique_ptr<GrpcServer> server,
      GrpcServer::Start(
          *acceptor,
          {.limits = flags.server,
           // Above the router's limit, so that it can say what is wrong.
           .max_message_bytes = static_cast<int32_t>(kGrpcLimitFactor * tuning.max_message_bytes),
           .services = {{kInferenceName, &inference},
                        {v1::Cluster::service_full_name(), &cluster_service}},
           .credentials = guards.tls.Credentials(),
           .tls_refusals = guards.tls.CountedRefusals()}));
  server->SetHealth(kInferenceName, GrpcServer::Health::kNotServing);  // until a route is there
  RouterHealth health({.loop = loop,
                       .cluster = observed.cluster,
                       .clock = observed.clock,
                       .connections = [&acceptor] { return acceptor->use(); },
                       .changed =
                           [&server](bool ready) {
                             server->SetHealth(kInferenceName,
                                               ready ? GrpcServer::Health::kServing
                                                     : GrpcServer::Health::kNotServing);
                           }});
  const auto status = [&router, &add_process] {
    v1::GetStatusResponse now = router.Status();
    add_process(now);
    return now;
  };
  std::atomic<const HttpServer*> http_use =
      nullptr;  // outlives both servers, whose pages it is for
  const AdminPages pages = PagesOf(status, observed.requests, health, http_use);
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> http,
                   ServeHttp(flags, pages, router, service, answers, guards));
  http_use = http.get();
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> metrics, ServeMetrics(flags, pages));
  RunUntilTerminated(flags, HostPortText(flags.host, acceptor->port()), service.model(), router,
                     loop, {.grpc = *server, .health = health, .http = http.get()});
  return absl::OkStatus();
}

absl::Status Serve(const RouterFlags& flags, const ProcessTls& tls) {
  const RouterTuning& tuning = flags.tuning;
  ASSIGN_OR_RETURN(const ServedModel served, ServedBy(flags));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizerIfAny(flags.model_dir));
  RouterOptions options = MakeRouterOptions(flags, served, tokenizer.get());
  const SteadyClock clock;
  AdmissionControl admission(
      {.max_in_flight = tuning.max_in_flight, .shedding = *ParseShedding(tuning.shed)});
  ASSIGN_OR_RETURN(const std::unique_ptr<AccessControl> access,
                   OpenAccess(flags, admission, clock));
  RequestLedger ledger(clock);
  PredictionBook predictions;
  ASSIGN_OR_RETURN(const PolicyOptions policy_options, MakePolicyOptions(tuning));
  const PolicyParts policy_parts{
      .clock = clock, .ledger = ledger, .errors = &predictions, .options = policy_options};
  ASSIGN_OR_RETURN(const std::unique_ptr<RoutingPolicy> policy,
                   NewRoutingPolicy(tuning.policy, policy_parts));
  const auto loop = std::make_shared<EventLoop>(clock, kMaxLoopTasks);
  Cluster cluster(MakeClusterOptions(tuning, options), clock);
  GrpcWorkerClient workers(loop, tls.source);
  AnswerBuffers answers(tuning.answer_buffer_bytes);
  ResumeStats resumes;
  RerouteStats reroutes;
  RoutingStats routing(tuning.policy, options.limits.default_slo);
  ASSIGN_OR_RETURN(const std::unique_ptr<LengthForecasts> length_forecasts,
                   LengthForecasts::New(tuning.output_predictor));
  const std::unique_ptr<PrefixIndex> prefixes = NewPrefixIndex(tuning);
  const std::unique_ptr<SessionTable> sessions = NewSessionTable(tuning);
  DecisionLog decisions(tuning.policy, predictions);
  RequestMetrics requests(options.limits.default_slo);
  // The router's destructor waits for the threads that render and tokenize, and their work uses both.
  const openai::ModelFiles files = openai::LoadModelFiles(flags.model_dir, tuning.parsers);
  std::optional<openai::Service> service;
  Router router(options, {.tokenizer = tokenizer.get(),
                          .cluster = cluster,
                          .admission = admission,
                          .ledger = ledger,
                          .policy = *policy,
                          .workers = workers,
                          .loop = *loop,
                          .clock = clock,
                          .resumes = resumes,
                          .reroutes = reroutes,
                          .routing = routing,
                          .length_forecasts = *length_forecasts,
                          .decisions = decisions,
                          .metrics = requests,
                          .resume_limits = {.max_resumes = tuning.max_resumes},
                          .answers = &answers,
                          .prefixes = prefixes.get(),
                          .sessions = sessions.get()});
  ClusterService cluster_service(cluster, prefixes.get(), MostCacheChanges(tuning),
                                 tls.guard_or_null());
  service.emplace(PartsOf(tuning, options, files, tokenizer.get(), router, *loop, clock));
  if (access != nullptr) WatchAccess(*loop, *access);
  return ServePorts(flags, *service, router, *loop, cluster_service, answers,
                    {.cluster = cluster, .clock = clock, .requests = requests},
                    {.tls = tls, .access = access.get()});
}

int RunRouter(const RouterFlags& flags) {
  BlockTerminationSignals();
  absl::Status status = RaiseDescriptorLimit().status();
  if (status.ok()) status = SetUpLogging(flags.log_level, "router");
  if (status.ok()) status = CheckLease(flags.tuning);
  ProcessTls tls;
  if (status.ok()) status = tls.OpenForRouter(flags.tls, ClientCertificatesOf(flags));
  if (status.ok()) status = Serve(flags, tls);
  return status.ok() ? kExitOk : FailStart(flags.ready_fd, status);
}

}  // namespace

void AddRouterCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<RouterFlags>();
  CLI::App* router =
      app.add_subcommand("router", "Take clients' requests and send them to workers");
  router->add_option("--model", flags->model_dir,
                     "directory with config.json and tokenizer.json; weights are not read");
  router->add_option(
      "--simulated", flags->simulated,
      "parameter file of the workers' --device simulated:FILE; prompts are token ids "
      "unless --model has a tokenizer");
  router->add_option("--model-name", flags->model_name,
                     "served under this name; default: its folder");
  router->add_option("--port", flags->port, "0: a free one")->capture_default_str();
  router->add_option("--host", flags->host, "address to listen on")->capture_default_str();
  AddMetricsFlag(*router, flags->metrics_port);
  router->add_option("--http-port", flags->http_port,
                     "serve HTTP there; 0: a free one; default: not at all");
  AddHttpFlags(*router, flags->http);
  AddAccessFlag(*router, flags->access_file);
  router
      ->add_option("--drain-seconds", flags->drain_seconds,
                   "at SIGTERM, how long requests may still take")
      ->check(NotNegative())
      ->capture_default_str();
  AddRouterFlags(*router, flags->tuning);
  AddServerLimitFlags(*router, flags->server);
  AddPortTlsFlags(*router, flags->tls);
  AddTlsClientsFlag(*router, flags->tls_clients);
  AddLogLevelFlag(*router, flags->log_level);
  AddReadyFlag(*router, flags->ready_fd);
  router->footer(
      "Example:\n"
      "  tandem router --model models/sample --host 0.0.0.0 --port 8080");
  router->callback([flags, &chosen] { chosen = [flags] { return RunRouter(*flags); }; });
}

}  // namespace tandem
