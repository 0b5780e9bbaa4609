#include "server/assembly/worker.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/engine.h"
#include "router/cluster/cluster_view.h"
#include "server/admin/watchdog.h"
#include "server/assembly/addresses.h"
#include "server/assembly/cost_options.h"
#include "server/assembly/engine_options.h"
#include "server/assembly/host_memory.h"
#include "server/assembly/loaded_model.h"
#include "server/assembly/open_fabric.h"
#include "server/assembly/process_tls.h"
#include "server/assembly/registration.h"
#include "server/assembly/transfer_report.h"
#include "server/assembly/worker_pages.h"
#include "server/services/connection_acceptor.h"
#include "server/services/grpc_server.h"
#include "server/services/worker_messages.h"
#include "server/services/worker_service.h"
#include "server/tracing/process_tracing.h"
#include "transfer/wire/frame.h"

namespace tandem {
namespace {

constexpr int32_t kMaxMessageBytes = 64 << 20;  // large, as routers bound the prompts they send

}  // namespace

// Why the worker can no longer serve requests; OK while it can. Thread-safe.
struct Failure {
  mutable absl::Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

// The transports of a worker's KV. Members are destroyed in reverse order.
struct Transfers {
  std::deque<TurnCounter> turns;   // iterations of the transports' threads, for the watchdog
  std::vector<LeftOut> left_out;   // not changed after the worker listens
  std::unique_ptr<Fabric> fabric;  // null for a unified worker
  std::string data_address;        // where KV arrives; empty for a unified worker
};

// The gRPC port that routers call. Members are destroyed in reverse order.
struct CallPort {
  std::unique_ptr<ConnectionAcceptor> acceptor;  // accepts the connections of `server`
  std::unique_ptr<WorkerService> service;
  std::unique_ptr<GrpcServer> server;
  std::string address;  // host:port
};

// Members are constructed in this order and destroyed in reverse.
struct Worker::Parts {
  WorkerOptions options;
  ProcessTls tls;
  SteadyClock clock;
  ProcessTracing tracing;  // before the engine, which adds spans when requests end
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<Engine> engine;
  Transfers transfers;  // after the engine, because the fabric calls its receiver
  CallPort calls;
  std::unique_ptr<Watchdog> watchdog;
  std::atomic<bool> draining = false;
  std::unique_ptr<Registration> registration;
  std::atomic<Registration*> to_nudge = nullptr;  // null until registration exists
  std::unique_ptr<HttpServer> admin;              // null where no admin port was asked for
  Failure failure;

  ~Parts() {
    if (engine != nullptr) engine->Shutdown(std::chrono::steady_clock::now());
  }
  Device& device() const { return *model->backend.device; }
  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& engine_options);
  absl::Status OpenTls();
  absl::Status OpenEngine();
  absl::Status OpenTransport();
  // The host memory that the worker takes; `transfer_bytes` are in the buffers of transfers.
  HostMemoryUse MemoryUse(const EngineOptions& engine_options, int64_t transfer_bytes) const;
  absl::Status CheckMemory(const DeviceMemory& before_transfers);
  void OnLost(const absl::Status& why);
  absl::Status Listen();
  v1::WorkerLoad Load() const;  // thread-safe
  // Whether the worker is only ready if a step has ended recently: not before the first steps can
  // run. Thread-safe.
  bool NeedsSteps() const {
    return options.tuning.progress_seconds > 0 && !engine->stats().starting;
  }
  void SetKvPeers(const std::vector<v1::KvPeer>& peers);
  std::vector<Pulse> Pulses() const;
  void Watch();
  void Register();
  std::set<std::string> NamedPeers() const;  // thread-safe
  absl::Status ServeAdmin();
};

absl::Status Worker::Parts::OpenTls() {
  TransferTuning& transfer = options.tuning.transfer;
  RETURN_IF_ERROR(transfer.tls.Check("--kv-tls"));
  RETURN_IF_ERROR(tls.OpenForWorker(options.tls));
  if (!transfer.tls.enabled()) transfer.tls = options.tls;
  transfer.tls_refusals = tls.refusals;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Engine>> Worker::Parts::CreateEngine(
    const EngineOptions& engine_options) {
  return Engine::Create(engine_options,
                        {.model = model->config,
                         .device = device(),
                         .ops = *model->backend.ops,
                         .weights = model->weights.get(),
                         .simulated = model->simulated ? &*model->simulated : nullptr,
                         .clock = clock,
                         .lost = [this](const auto& why) { OnLost(why); }});
}

HostMemoryUse Worker::Parts::MemoryUse(const EngineOptions& engine_options,
                                       int64_t transfer_bytes) const {
  const int64_t weights = model->weights == nullptr ? 0 : model->weights->resident_bytes();
  return MemoryUseOf(engine_options, device(), weights, transfer_bytes);
}

absl::Status Worker::Parts::OpenEngine() {
  ASSIGN_OR_RETURN(EngineOptions engine_options,
                   EngineOptionsFor(options, model->config, model->fingerprint, device()));
  ASSIGN_OR_RETURN(
      engine_options.costs,
      StartCostsFor(options.tuning, *model, ProvenanceOf(options, *model, engine_options)));
  engine_options.reserved_device_bytes = FabricDeviceBytes(options, engine_options, device());
  // Checked before any memory is taken: a pool takes memory as it fills, not when it is created.
  RETURN_IF_ERROR(
      CheckFits(MemoryUse(engine_options, FabricSharedBytes(options)), HostMemoryLimit()));
  absl::StatusOr<std::unique_ptr<Engine>> created = CreateEngine(engine_options);
  // The system may have no shared memory left, but still private memory.
  if (absl::IsResourceExhausted(created.status()) && engine_options.share_kv) {
    const absl::Status why = created.status();
    if (!MayKeepKvPrivate(options)) {
      return ResourceExhausted("{}; or do without sharing it by --kv-transport=shm,tcp",
                               std::string(why.message()));
    }
    engine_options.share_kv = false;
    created = CreateEngine(engine_options);
    if (created.ok()) LeaveOut("ipc", why, transfers.left_out);
  }
  ASSIGN_OR_RETURN(engine, std::move(created));
  const EngineOptions& made = engine->options();
  LogInfo(
      "engine ready device={} role={} blocks={} block_tokens={} kv_megabytes={:.1f} "
      "host_megabytes={:.1f} prefix_cache={} schedule={} max_context={} layout={:016x}",
      model->device_name, Name(ToProto(made.role)), made.num_blocks, made.layout.block_tokens,
      static_cast<double>(made.num_blocks * made.layout.BlockBytes()) / 1e6,
      static_cast<double>(made.host_bytes) / 1e6, options.tuning.prefix_cache,
      options.tuning.schedule, made.max_context_tokens,
      made.layout.Fingerprint(made.model_fingerprint));
  return absl::OkStatus();
}

// Checks the memory of the device and of the host, now that it is known how much the transports
// take.
absl::Status Worker::Parts::CheckMemory(const DeviceMemory& before_transfers) {
  const EngineOptions& made = engine->options();
  const Fabric* fabric = transfers.fabric.get();
  int64_t bytes = fabric == nullptr ? 0 : static_cast<int64_t>(fabric->stats().buffer_bytes);
  if (!device().is_host()) {
    ASSIGN_OR_RETURN(const DeviceMemory memory, device().Memory());
    const auto taken = static_cast<int64_t>(memory.own_bytes - before_transfers.own_bytes);
    if (taken > made.reserved_device_bytes) {
      LogWarn("device={} transfers took bytes={} reserved={}", device().name(), taken,
              made.reserved_device_bytes);
    }
    bytes -= taken;
  }
  const HostMemoryUse use = MemoryUse(made, bytes);
  const int64_t memory_limit = HostMemoryLimit();
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  LogInfo(
      "host memory megabytes={:.1f} weights={:.1f} kv_pool={:.1f} host_tier={:.1f} "
      "transfers={:.1f} limit={:.1f}",
      megabytes(use.sum()), megabytes(use.weights), megabytes(use.kv_pool),
      megabytes(use.host_tier), megabytes(use.transfers), megabytes(memory_limit));
  return CheckFits(use, memory_limit);
}

// Ends this process, which can no longer serve. A new process may find the device, or the file, in
// order.
void Worker::Parts::OnLost(const absl::Status& why) {
  {
    absl::MutexLock lock(&failure.mutex);
    failure.status = Annotate(why, "this worker serves no request any more and ends");
    LogError("{}", failure.status.ToString());
  }
  if (!draining) kill(getpid(), SIGTERM);  // while draining, the process ends anyway
}

absl::Status Worker::Parts::OpenTransport() {
  if (options.role == Role::kUnified) return absl::OkStatus();
  ASSIGN_OR_RETURN(transfers.fabric, OpenFabric(options, *engine, device(), clock, transfers.turns,
                                                transfers.left_out));
  const Fabric& fabric = *transfers.fabric;
  engine->SetTransport(transfers.fabric.get());
  std::string& data_address = transfers.data_address;
  data_address = options.advertised_data.empty() ? fabric.address() : options.advertised_data;
  if (data_address != fabric.address()) {
    LogInfo("transfer by what --advertise-data names alone, not by \"{}\"", fabric.address());
  }
  LogInfo("transfer ready data_address=\"{}\" buffer_megabytes={:.1f}", data_address,
          static_cast<double>(fabric.stats().buffer_bytes) / 1e6);
  return absl::OkStatus();
}

absl::Status Worker::Parts::Listen() {
  const std::string& advertised =
      options.advertised_host.empty() ? options.host : options.advertised_host;
  ASSIGN_OR_RETURN(const DeviceMemory before, device().Memory());
  RETURN_IF_ERROR(OpenTransport());
  RETURN_IF_ERROR(CheckMemory(before));
  const auto nudge = [this] {
    if (Registration* known = to_nudge) known->Nudge();
  };
  calls.service =
      std::make_unique<WorkerService>(*engine, transfers.data_address, nudge, &tracing.tracer());
  ASSIGN_OR_RETURN(calls.acceptor,
                   ConnectionAcceptor::Listen(options.host, options.port, options.server));
  ASSIGN_OR_RETURN(
      calls.server,
      GrpcServer::Start(*calls.acceptor,
                        {.limits = options.server,
                         .max_message_bytes = kMaxMessageBytes,
                         .services = {{v1::Worker::service_full_name(), calls.service.get()}},
                         .credentials = tls.Credentials(),
                         .tls_refusals = tls.CountedRefusals()}));
  calls.address = HostPortText(advertised, calls.acceptor->port());
  LogInfo("listening address={}", calls.address);
  return absl::OkStatus();
}

std::vector<Pulse> Worker::Parts::Pulses() const {
  std::vector<Pulse> all = {{.name = "engine", .count = engine->progress()}};
  for (const TurnCounter& one : transfers.turns) {
    const uint64_t count = one.turns;
    // A transport that never turned is one that could not be opened here.
    if (count > 0) all.push_back({.name = one.name, .count = count});
  }
  if (!NeedsSteps()) return all;
  const auto limit = std::chrono::duration<double>(options.tuning.progress_seconds);
  all.push_back({.name = "step",
                 .count = static_cast<uint64_t>(engine->computed_at().time_since_epoch().count()),
                 .patience = std::chrono::duration_cast<Duration>(limit)});
  return all;
}

// Starts the watchdog, which reports a thread that hangs to the routers, so that they send no
// requests here meanwhile, and to the health service.
void Worker::Parts::Watch() {
  const auto pulses = [this] { return Pulses(); };
  watchdog = std::make_unique<Watchdog>(WatchdogOptions(), pulses, [this](const auto& reason) {
    using Health = GrpcServer::Health;
    calls.server->SetHealth(reason.empty() && !draining ? Health::kServing : Health::kNotServing);
    if (draining) calls.server->SetHealth(Health::kNotServing);  // if it began meanwhile
    if (Registration* known = to_nudge) known->TellNow();
  });
}

v1::WorkerLoad Worker::Parts::Load() const {
  v1::WorkerLoad load = ToLoad(engine->stats());
  // Set after the engine's stats are read: a load that says that the worker has started then has
  // the hash.
  load.set_weights_hash(model->weights_hash);
  const auto kv_ratio_to = [this](const std::string& peer) { return engine->kv_ratio_to(peer); };
  if (transfers.fabric != nullptr) AddTransfers(*transfers.fabric, kv_ratio_to, load);
  AddLeftOut(transfers.left_out, load);
  *load.mutable_connections() = calls.acceptor->use();
  load.set_log_lines_dropped(LogLinesDropped());
  load.set_block_tokens(engine->options().layout.block_tokens);
  tls.Report(*load.mutable_tls_refusals());
  load.set_not_ready(watchdog->reason());
  if (NeedsSteps()) load.set_progress_age_ms(ToMilliseconds(clock.Now() - engine->computed_at()));
  return load;
}

std::set<std::string> Worker::Parts::NamedPeers() const {
  std::set<std::string> names;
  if (transfers.fabric == nullptr) return names;
  for (const PeerLink& link : transfers.fabric->peer_links()) {
    if (link.peer != link.address) names.insert(link.peer);
  }
  return names;
}

absl::Status Worker::Parts::ServeAdmin() {
  if (!options.metrics_port) return absl::OkStatus();
  const AdminPages pages = WorkerPages({.name = options.name,
                                        .role = std::string(Name(ToProto(options.role))),
                                        .model = model->name,
                                        .load = [this] { return Load(); },
                                        .peers = [this] { return NamedPeers(); },
                                        .draining = [this] { return draining.load(); },
                                        .tracing = tracing,
                                        .watchdog = *watchdog});
  ASSIGN_OR_RETURN(const HttpTlsFiles files, MetricsTlsFiles(options.metrics_tls, options.tls));
  ASSIGN_OR_RETURN(admin, StartMetricsServer(options.host, *options.metrics_port, pages, files,
                                             tls.refusals.get()));
  LogInfo("metrics at={}://{}/metrics", files.cert.empty() ? "http" : "https",
          HostPortText(options.host, admin->port()));
  return absl::OkStatus();
}

void Worker::Parts::SetKvPeers(const std::vector<v1::KvPeer>& peers) {
  std::vector<FabricPeer> known;
  for (const v1::KvPeer& peer : peers) {
    known.push_back({.name = peer.name(), .epoch = peer.epoch(), .address = peer.data_address()});
  }
  transfers.fabric->SetPeers(known);
}

void Worker::Parts::Register() {
  v1::RegisterRequest self;
  self.set_name(options.name);
  self.set_incarnation(engine->options().epoch);
  self.set_role(ToProto(options.role));
  self.set_address(calls.address);
  self.set_model(model->name);
  self.set_simulated(model->simulated.has_value());
  self.set_model_fingerprint(engine->options().model_fingerprint);
  *self.mutable_layout() = ToProto(engine->options().layout);
  self.set_max_context_tokens(engine->options().max_context_tokens);
  self.set_block_tokens(engine->options().layout.block_tokens);
  if (options.role == Role::kDecode) self.set_data_address(transfers.data_address);
  self.set_wire_version(kFrameVersion);
  self.set_max_step_tokens(engine->options().scheduler.max_step_tokens);
  self.set_max_sequences(engine->options().scheduler.max_sequences);
  const EngineOptions& made = engine->options();
  if (engine->prefix_journal() != nullptr) {
    self.set_prefix_root(made.layout.Fingerprint(made.model_fingerprint));
  }
  self.set_pid(getpid());
  self.set_device(model->device_name);
  RegistrationOptions joining = {
      .routers = options.routers, .self = std::move(self), .load = [this] { return Load(); }};
  joining.cached = engine->prefix_journal();
  joining.tls = tls.source;
  if (options.role == Role::kPrefill) {
    joining.kv_peers = [this](const std::vector<v1::KvPeer>& peers) { SetKvPeers(peers); };
  }
  registration = std::make_unique<Registration>(std::move(joining));
  to_nudge = registration.get();
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options) {
  RETURN_IF_ERROR(CheckAddresses(options));
  auto parts = std::make_unique<Parts>();
  parts->options = options;
  RETURN_IF_ERROR(parts->OpenTls());
  ASSIGN_OR_RETURN(
      parts->tracing,
      ProcessTracing::Open(options.trace, {.role = std::string(Name(ToProto(options.role))),
                                           .name = options.name,
                                           .build = options.build}));
  ASSIGN_OR_RETURN(parts->model, LoadModel(parts->options));
  RETURN_IF_ERROR(parts->OpenEngine());
  RETURN_IF_ERROR(parts->Listen());
  parts->Watch();
  RETURN_IF_ERROR(parts->ServeAdmin());
  parts->Register();
  return std::unique_ptr<Worker>(new Worker(std::move(parts)));
}

Worker::Worker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Worker::~Worker() { Drain(std::chrono::steady_clock::now()); }

const std::string& Worker::address() const { return parts_->calls.address; }

std::string Worker::data_address() const {
  return parts_->transfers.fabric == nullptr ? "" : parts_->transfers.fabric->address();
}

absl::Status Worker::failure() const {
  const Failure& failure = parts_->failure;
  absl::MutexLock lock(&failure.mutex);
  return failure.status;
}

bool Worker::WaitUntilKnown() { return parts_->registration->WaitUntilKnown(); }

void Worker::Drain(TimePoint deadline) {
  parts_->registration->Leave();
  parts_->draining = true;
  parts_->calls.server->SetHealth(GrpcServer::Health::kNotServing);
  parts_->engine->Shutdown(deadline);
  parts_->registration->Stop();
  parts_->admin.reset();     // before the watchdog, which its pages read
  parts_->watchdog.reset();  // after the registration and the pages that it reports to
  // All streams have ended with the engine; only the last answers are still being written.
  parts_->calls.server->Shutdown(std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
  // Spans of the last requests get a moment even when draining has used up all the time.
  parts_->tracing.Shutdown(
      std::max(deadline, std::chrono::steady_clock::now() + std::chrono::milliseconds(500)));
}

}  // namespace tandem
