#include "server/assemble.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"
#include "kernels/registry.h"
#include "model/checkpoint/checkpoint.h"
#include "router/cluster/cluster_view.h"
#include "server/addresses.h"
#include "server/connection_acceptor.h"
#include "server/grpc_server.h"
#include "server/host_memory.h"
#include "server/load_progress.h"
#include "server/model_fingerprint.h"
#include "server/open_fabric.h"
#include "server/registration.h"
#include "server/transfer_report.h"
#include "server/watchdog.h"
#include "server/worker_messages.h"
#include "server/worker_service.h"
#include "transfer/wire/frame.h"

namespace tandem {
namespace {

constexpr int32_t kMaxMessageBytes = 64 << 20;  // prompts come from routers, which bound them
constexpr int64_t kDefaultContexts = 16;
constexpr int64_t kDefaultMaxKvBytes = int64_t{1} << 30;

// The largest step unless one is asked for: what keeps the device busy.
struct StepSize {
  int32_t tokens;
  int32_t sequences;
};
constexpr StepSize kStepOnCpu = {.tokens = 512, .sequences = 64};
constexpr StepSize kStepOnGpu = {.tokens = 2048, .sequences = 256};

absl::StatusOr<DType> KvDType(const std::string& name, DType weights) {
  if (name == "auto") return weights;
  const std::optional<DType> dtype = DTypeFromName(name);
  if (dtype && *dtype != DType::kI32 && *dtype != DType::kI64) return *dtype;
  return InvalidArgument("--kv-dtype {} is unknown; use auto, bf16, f16, f8e4m3 or f32", name);
}

// A flag's words and what they stand for.
template <typename Value>
struct Word {
  std::string_view word;
  Value value;
};

template <typename Value>
absl::StatusOr<Value> Parse(std::string_view flag, const std::string& given,
                            std::initializer_list<Word<Value>> words) {
  std::string known;
  for (const Word<Value>& word : words) {
    if (word.word == given) return word.value;
    known += fmt::format("{}{}", known.empty() ? "" : " or ", word.word);
  }
  return InvalidArgument("{} {} is unknown; use {}", flag, given, known);
}

absl::Status SetKvOptions(const WorkerTuning& tuning, EngineOptions& engine) {
  ASSIGN_OR_RETURN(
      engine.prefix_caching,
      Parse<PrefixCaching>("--prefix-cache", tuning.prefix_cache,
                           {{"on", PrefixCaching::kOn}, {"off", PrefixCaching::kOff}}));
  ASSIGN_OR_RETURN(
      engine.eviction,
      Parse<EvictionKind>("--eviction", tuning.eviction,
                          {{"lru", EvictionKind::kLru}, {"cost-aware", EvictionKind::kCostAware}}));
  engine.host_bytes = static_cast<int64_t>(tuning.host_kv_bytes);
  return absl::OkStatus();
}

void SetReservationOptions(const TransferTuning& tuning, EngineOptions& engine) {
  engine.reservation_lease = std::chrono::milliseconds(tuning.lease_ms);
  engine.max_waiting_reservations = tuning.max_waiting_reservations;
  engine.max_reservation_wait = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(tuning.max_reservation_wait_seconds));
}

absl::Status SetScheduler(const WorkerTuning& tuning, const Device& device,
                          SchedulerOptions& scheduler) {
  const StepSize step = device.is_host() ? kStepOnCpu : kStepOnGpu;
  scheduler.max_step_tokens = tuning.max_step_tokens != 0 ? tuning.max_step_tokens : step.tokens;
  scheduler.max_prefill_chunk = tuning.max_prefill_chunk;
  scheduler.max_sequences = tuning.max_sequences != 0 ? tuning.max_sequences : step.sequences;
  scheduler.max_waiting = tuning.max_waiting;
  ASSIGN_OR_RETURN(scheduler.policy,
                   Parse<SchedulingPolicyKind>("--schedule", tuning.schedule,
                                               {{"fair", SchedulingPolicyKind::kFair},
                                                {"deadline", SchedulingPolicyKind::kDeadline}}));
  scheduler.max_wait =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(tuning.max_wait_seconds));
  return absl::OkStatus();
}

absl::StatusOr<int32_t> NumBlocks(const WorkerTuning& tuning, const KvLayout& layout,
                                  int32_t max_context) {
  int64_t tokens = tuning.kv_tokens;
  if (tokens == 0 && tuning.kv_bytes > 0) {
    tokens = static_cast<int64_t>(tuning.kv_bytes) / layout.BytesPerToken();
  } else if (tokens == 0) {
    tokens = std::min(kDefaultContexts * max_context, kDefaultMaxKvBytes / layout.BytesPerToken());
  }
  const int64_t blocks = tokens / layout.block_tokens;
  constexpr int64_t kMaxBlocks = 1 << 30;
  if (blocks >= 1 && blocks <= kMaxBlocks) return static_cast<int32_t>(blocks);
  return InvalidArgument(
      "a KV pool of {} tokens makes {} blocks of {}; it needs 1 to {}: change "
      "--kv-tokens or --kv-bytes",
      tokens, blocks, layout.block_tokens, kMaxBlocks);
}

// What cannot fit into the pool need not be let in. Where the engine is to size the pool, it sees
// to that itself.
absl::Status SetPoolSize(const WorkerTuning& tuning, const Device& device, EngineOptions& engine) {
  if (tuning.kv_tokens == 0 && tuning.kv_bytes == 0 && !device.is_host()) return absl::OkStatus();
  ASSIGN_OR_RETURN(engine.num_blocks, NumBlocks(tuning, engine.layout, engine.max_context_tokens));
  engine.max_context_tokens = static_cast<int32_t>(std::min<int64_t>(
      engine.max_context_tokens, int64_t{engine.num_blocks} * engine.layout.block_tokens));
  return absl::OkStatus();
}

absl::StatusOr<EngineOptions> MakeEngineOptions(const WorkerOptions& options,
                                                const ModelConfig& config, const Device& device,
                                                uint64_t model_fingerprint) {
  const WorkerTuning& tuning = options.tuning;
  EngineOptions engine;
  engine.role = options.role;
  ASSIGN_OR_RETURN(const DType kv_dtype, KvDType(tuning.kv_dtype, config.dtype));
  engine.layout = {.num_layers = config.num_layers,
                   .num_kv_heads = config.num_kv_heads,
                   .head_dim = config.head_dim,
                   .block_tokens = tuning.block_tokens,
                   .dtype = kv_dtype};
  RETURN_IF_ERROR(engine.layout.Validate());
  const int32_t model_context = config.max_position_embeddings;
  if (tuning.max_context > model_context) {
    return InvalidArgument("--max-context {} exceeds the model's {}", tuning.max_context,
                           model_context);
  }
  engine.max_context_tokens = tuning.max_context > 0 ? tuning.max_context : model_context;
  engine.device_memory_fraction =
      tuning.device_memory_fraction.value_or(kDefaultDeviceMemoryFraction);
  RETURN_IF_ERROR(SetPoolSize(tuning, device, engine));
  engine.splits = tuning.batch_invariant ? SplitMode::kFixed : SplitMode::kBalanced;
  RETURN_IF_ERROR(SetKvOptions(tuning, engine));
  RETURN_IF_ERROR(SetScheduler(tuning, device, engine.scheduler));
  engine.model_fingerprint = model_fingerprint;
  engine.epoch = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                       std::chrono::nanoseconds(1));
  ASSIGN_OR_RETURN(engine.share_kv, SharesKv(options, device));
  engine.check_invariants = tuning.check_invariants;
  SetReservationOptions(tuning.transfer, engine);
  return engine;
}

}  // namespace

// Why the worker can serve no more; OK while it can. Thread-safe.
struct Failure {
  mutable absl::Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

// Members are constructed in this order and destroyed in reverse.
struct Worker::Parts {
  WorkerOptions options;
  SteadyClock clock;
  Backend backend;
  ModelConfig config;
  std::atomic<uint64_t> weights_hash = 0;  // 0 until all weights have been read
  std::unique_ptr<WeightStore> weights;    // filled while the rest starts, and after
  std::deque<TurnCounter> turns;           // of the threads of the transports
  std::vector<LeftOut> left_out;           // constant once it listens
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Fabric> transport;             // after the engine, whose receiver it calls
  std::unique_ptr<ConnectionAcceptor> acceptor;  // of the server
  std::unique_ptr<WorkerService> service;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<Watchdog> watchdog;
  std::atomic<bool> draining = false;
  std::unique_ptr<Registration> registration;
  std::atomic<Registration*> to_nudge = nullptr;  // set once it exists: calls may come before
  std::string address;
  std::string data_address;  // where KV arrives; empty on a unified worker
  Failure failure;

  ~Parts() {
    if (engine != nullptr) engine->Shutdown(std::chrono::steady_clock::now());
  }
  absl::StatusOr<uint64_t> LoadModel();
  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& engine_options);
  absl::Status OpenEngine(uint64_t fingerprint);
  absl::Status OpenTransport();
  // Of the host; `transfers` bytes are in the buffers of transfers.
  HostMemoryUse MemoryUse(const EngineOptions& engine_options, int64_t transfers) const;
  absl::Status CheckMemory(const DeviceMemory& before_transfers);
  void OnLost(const absl::Status& why);
  absl::Status Listen();
  v1::WorkerLoad Load() const;  // thread-safe
  void SetKvPeers(const std::vector<v1::KvPeer>& peers);
  void Watch();
  void Register();
};

absl::StatusOr<uint64_t> Worker::Parts::LoadModel() {
  const WorkerTuning& tuning = options.tuning;
  ASSIGN_OR_RETURN(backend, OpenBackend(tuning.device, {.num_threads = tuning.threads}));
  ASSIGN_OR_RETURN(config, LoadModelConfig(options.model_dir));
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.model_dir));
  AdoptDType(*checkpoint, config);
  ASSIGN_OR_RETURN(const uint64_t fingerprint, FingerprintModel(options.model_dir, *checkpoint));
  ASSIGN_OR_RETURN(Backend packing, OpenBackend(tuning.device, {.num_threads = tuning.threads}));
  const auto display = std::make_shared<LoadProgressDisplay>(options.model_name);
  ASSIGN_OR_RETURN(
      weights, LoadResidentWeights(
                   config, std::move(checkpoint), *backend.device, std::move(packing.ops),
                   [display](uint64_t loaded, uint64_t total) { display->Update(loaded, total); },
                   [this](uint64_t hash) { weights_hash = hash; }));
  return fingerprint;
}

absl::StatusOr<std::unique_ptr<Engine>> Worker::Parts::CreateEngine(
    const EngineOptions& engine_options) {
  return Engine::Create(engine_options, {.model = config,
                                         .device = *backend.device,
                                         .ops = *backend.ops,
                                         .weights = *weights,
                                         .clock = clock,
                                         .lost = [this](const auto& why) { OnLost(why); }});
}

HostMemoryUse Worker::Parts::MemoryUse(const EngineOptions& engine_options,
                                       int64_t transfers) const {
  HostMemoryUse use = {.host_tier = engine_options.host_bytes, .transfers = transfers};
  if (!backend.device->is_host()) return use;
  use.weights = weights->resident_bytes();
  use.kv_pool = engine_options.num_blocks * engine_options.layout.BlockBytes();
  return use;
}

absl::Status Worker::Parts::OpenEngine(uint64_t fingerprint) {
  ASSIGN_OR_RETURN(EngineOptions engine_options,
                   MakeEngineOptions(options, config, *backend.device, fingerprint));
  engine_options.reserved_device_bytes =
      FabricDeviceBytes(options, engine_options, *backend.device);
  // Before any of it is taken: a pool costs memory as it fills, not when it is made.
  RETURN_IF_ERROR(
      CheckFits(MemoryUse(engine_options, FabricSharedBytes(options)), HostMemoryLimit()));
  absl::StatusOr<std::unique_ptr<Engine>> created = CreateEngine(engine_options);
  // The system may give this process private memory and no more of the other kind.
  if (absl::IsResourceExhausted(created.status()) && engine_options.share_kv) {
    const absl::Status why = created.status();
    if (!MayKeepKvPrivate(options)) {
      return ResourceExhausted("{}; or do without sharing it by --kv-transport=shm,tcp",
                               std::string(why.message()));
    }
    engine_options.share_kv = false;
    created = CreateEngine(engine_options);
    if (created.ok()) LeaveOut("ipc", why, left_out);
  }
  ASSIGN_OR_RETURN(engine, std::move(created));
  const EngineOptions& made = engine->options();
  LogInfo(
      "engine ready device={} role={} blocks={} block_tokens={} kv_megabytes={:.1f} "
      "host_megabytes={:.1f} prefix_cache={} schedule={} max_context={} layout={:016x}",
      backend.device->name(), Name(ToProto(made.role)), made.num_blocks, made.layout.block_tokens,
      static_cast<double>(made.num_blocks * made.layout.BlockBytes()) / 1e6,
      static_cast<double>(made.host_bytes) / 1e6, options.tuning.prefix_cache,
      options.tuning.schedule, made.max_context_tokens,
      made.layout.Fingerprint(made.model_fingerprint));
  return absl::OkStatus();
}

// What transfers take, now that it is known, of the device's memory and of the host's.
absl::Status Worker::Parts::CheckMemory(const DeviceMemory& before_transfers) {
  const EngineOptions& made = engine->options();
  int64_t transfers = transport == nullptr ? 0 : static_cast<int64_t>(transport->buffer_bytes());
  if (!backend.device->is_host()) {
    ASSIGN_OR_RETURN(const DeviceMemory memory, backend.device->Memory());
    const auto taken = static_cast<int64_t>(memory.own_bytes - before_transfers.own_bytes);
    if (taken > made.reserved_device_bytes) {
      LogWarn("device={} transfers took bytes={} reserved={}", backend.device->name(), taken,
              made.reserved_device_bytes);
    }
    transfers -= taken;
  }
  const HostMemoryUse use = MemoryUse(made, transfers);
  const int64_t memory_limit = HostMemoryLimit();
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  LogInfo(
      "host memory megabytes={:.1f} weights={:.1f} kv_pool={:.1f} host_tier={:.1f} "
      "transfers={:.1f} limit={:.1f}",
      megabytes(use.sum()), megabytes(use.weights), megabytes(use.kv_pool),
      megabytes(use.host_tier), megabytes(use.transfers), megabytes(memory_limit));
  return CheckFits(use, memory_limit);
}

// Another process may find the device, or the file, in order; this one will not.
void Worker::Parts::OnLost(const absl::Status& why) {
  {
    absl::MutexLock lock(&failure.mutex);
    failure.status = Annotate(why, "this worker serves no request any more and ends");
    LogError("{}", failure.status.ToString());
  }
  if (!draining) kill(getpid(), SIGTERM);  // else it ends anyway
}

absl::Status Worker::Parts::OpenTransport() {
  if (options.role == Role::kUnified) return absl::OkStatus();
  ASSIGN_OR_RETURN(transport,
                   OpenFabric(options, *engine, *backend.device, clock, turns, left_out));
  engine->SetTransport(transport.get());
  data_address = options.advertised_data.empty() ? transport->address() : options.advertised_data;
  if (data_address != transport->address()) {
    LogInfo("transfer by what --advertise-data names alone, not by \"{}\"", transport->address());
  }
  LogInfo("transfer ready data_address=\"{}\" buffer_megabytes={:.1f}", data_address,
          static_cast<double>(transport->buffer_bytes()) / 1e6);
  return absl::OkStatus();
}

absl::Status Worker::Parts::Listen() {
  const std::string& advertised =
      options.advertised_host.empty() ? options.host : options.advertised_host;
  ASSIGN_OR_RETURN(const DeviceMemory before, backend.device->Memory());
  RETURN_IF_ERROR(OpenTransport());
  RETURN_IF_ERROR(CheckMemory(before));
  service = std::make_unique<WorkerService>(*engine, data_address, [this] {
    if (Registration* known = to_nudge) known->Nudge();
  });
  ASSIGN_OR_RETURN(acceptor,
                   ConnectionAcceptor::Listen(options.host, options.port, options.server));
  ASSIGN_OR_RETURN(server, GrpcServer::Start(*acceptor, {.limits = options.server,
                                                         .max_message_bytes = kMaxMessageBytes,
                                                         .services = {service.get()}}));
  address = HostPortText(advertised, acceptor->port());
  LogInfo("listening address={}", address);
  return absl::OkStatus();
}

// What hangs is told to the routers, which send nothing here meanwhile, and by the health service.
void Worker::Parts::Watch() {
  const auto pulses = [this] {
    std::vector<Pulse> all = {{.name = "engine", .count = engine->progress()}};
    for (const TurnCounter& one : turns) {
      const uint64_t count = one.turns;
      // One that never began is a transport that could not be had here.
      if (count > 0) all.push_back({.name = one.name, .count = count});
    }
    return all;
  };
  watchdog = std::make_unique<Watchdog>(WatchdogOptions(), pulses, [this](const auto& reason) {
    using Health = GrpcServer::Health;
    server->SetHealth(reason.empty() && !draining ? Health::kServing : Health::kNotServing);
    if (draining) server->SetHealth(Health::kNotServing);  // since it was looked at
    if (Registration* known = to_nudge) known->TellNow();
  });
}

v1::WorkerLoad Worker::Parts::Load() const {
  v1::WorkerLoad load = ToLoad(engine->stats());
  // After the engine's report: who reads that it has started finds the hash beside it.
  load.set_weights_hash(weights_hash);
  if (transport != nullptr) AddTransfers(*transport, load);
  AddLeftOut(left_out, load);
  *load.mutable_connections() = acceptor->use();
  load.set_log_lines_dropped(LogLinesDropped());
  load.set_not_ready(watchdog->reason());
  return load;
}

void Worker::Parts::SetKvPeers(const std::vector<v1::KvPeer>& peers) {
  std::vector<FabricPeer> known;
  for (const v1::KvPeer& peer : peers) {
    known.push_back({.name = peer.name(), .epoch = peer.epoch(), .address = peer.data_address()});
  }
  transport->SetPeers(known);
}

void Worker::Parts::Register() {
  v1::RegisterRequest self;
  self.set_name(options.name);
  self.set_incarnation(engine->options().epoch);
  self.set_role(ToProto(options.role));
  self.set_address(address);
  self.set_model(options.model_name);
  self.set_model_fingerprint(engine->options().model_fingerprint);
  *self.mutable_layout() = ToProto(engine->options().layout);
  self.set_max_context_tokens(engine->options().max_context_tokens);
  self.set_block_tokens(engine->options().layout.block_tokens);
  if (options.role == Role::kDecode) self.set_data_address(data_address);
  self.set_wire_version(kFrameVersion);
  self.set_pid(getpid());
  self.set_device(backend.device->name());
  RegistrationOptions joining = {
      .routers = options.routers, .self = std::move(self), .load = [this] { return Load(); }};
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
  ASSIGN_OR_RETURN(const uint64_t fingerprint, parts->LoadModel());
  RETURN_IF_ERROR(parts->OpenEngine(fingerprint));
  RETURN_IF_ERROR(parts->Listen());
  parts->Watch();
  parts->Register();
  return std::unique_ptr<Worker>(new Worker(std::move(parts)));
}

Worker::Worker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Worker::~Worker() { Drain(std::chrono::steady_clock::now()); }

const std::string& Worker::address() const { return parts_->address; }

std::string Worker::data_address() const {
  return parts_->transport == nullptr ? "" : parts_->transport->address();
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
  parts_->server->SetHealth(GrpcServer::Health::kNotServing);
  parts_->engine->Shutdown(deadline);
  parts_->registration->Stop();
  parts_->watchdog.reset();  // it has nobody to tell
  // All streams have ended with the engine; what is left is being written.
  parts_->server->Shutdown(std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
}

std::string ModelNameFor(const std::string& directory) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(directory, error);
  if (error) path = directory;
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

}  // namespace tandem
