#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/options.h"
#include "security/tls_files.h"
#include "security/tls_refusals.h"
#include "server/services/server_limits.h"
#include "server/tracing/trace_tuning.h"
#include "transfer/framed/framed_options.h"

namespace tandem {

#ifdef NDEBUG
inline constexpr bool kDebugBuild = false;
#else
inline constexpr bool kDebugBuild = true;
#endif

inline constexpr double kDefaultDeviceMemoryFraction = 0.9;

// How KV travels between workers, best by nature first.
inline constexpr std::string_view kTransports[] = {"ipc", "nccl", "shm", "tcp"};

struct TransferTuning {
  std::string transport = "auto";                // or some of kTransports, with commas between
  uint64_t buffer_bytes = uint64_t{64} << 20;    // shared memory, of a prefill worker
  uint64_t bandwidth = 0;                        // payload per second to each peer; 0: no limit
  Duration bandwidth_burst = kDefaultRateBurst;  // no flag: FramedOptions::rate_burst
  int64_t least_post_bytes = EngineOptions().least_post_bytes;  // no flag
  std::string probe = "on";                   // on, off: of the ways to the decode workers
  TlsFiles tls;                               // of tcp; none: those of WorkerOptions
  std::shared_ptr<TlsRefusals> tls_refusals;  // no flag: counts whom tcp refuses
  std::string codec = "auto";                 // of KV on its way: auto, raw, f3, mask-rice, probe
  int32_t codec_threads = EngineOptions().codec_threads;
  std::string dump_directory;  // for files of the KV of hand-offs; empty: none
  uint64_t dump_bytes = EngineOptions().kv_dump_bytes;
  int32_t lease_ms = 3000;                 // of a reservation
  int32_t max_waiting_reservations = 256;  // at a decode worker, for room
  double max_reservation_wait_seconds = 30;
};

// What may be tuned of a worker; the same for all that `tandem up` starts. 0: chosen by the worker.
struct WorkerTuning {
  std::string device = "cpu";
  double simulated_slowdown = 1;  // of a simulated device
  int32_t threads = 0;            // 0: one per core
  int64_t kv_tokens = 0;          // size of the KV pool; 0: from kv_bytes
  // 0: on the CPU sixteen full contexts, at most 1 GiB; elsewhere what device_memory_fraction
  // leaves.
  uint64_t kv_bytes = 0;
  // The share of a GPU's memory for weights, activations and KV; nothing: kDefaultDeviceMemoryFraction.
  std::optional<double> device_memory_fraction;
  int32_t block_tokens = 16;
  std::string weights = "stored";  // kWeightsAsNames
  std::string kv_dtype = "auto";   // auto: as the weights
  int32_t max_step_tokens = 0;     // 0: 512 on the CPU, 2048 on a GPU
  int32_t max_prefill_chunk = 0;   // 0: up to max_step_tokens
  int32_t max_sequences = 0;       // 0: 64 on the CPU, 256 on a GPU
  int32_t max_waiting = 1024;
  int32_t max_context = 0;              // 0: the model's
  std::string prefix_cache = "on";      // on, off
  std::string eviction = "lru";         // of cached blocks: lru, cost-aware
  uint64_t host_kv_bytes = 0;           // for KV that leaves the device; 0: none does
  std::string host_kv_codec = "raw";    // how it lies there: raw, f3, mask-rice
  std::string schedule = "fair";        // fair, deadline
  double max_wait_seconds = 30;         // what has waited for longer goes first
  std::string cost_model;               // parameter file of `tandem profile`; empty: none
  double profile_at_start_seconds = 2;  // without one: so long steps are measured; 0: not at all
  // A worker is ready only while a step has ended within so many seconds; an idle one runs steps for
  // that. 0: steps are not asked for.
  double progress_seconds = 30;
  bool batch_invariant = false;  // attention sums in an order that no batch changes
  bool check_invariants = kDebugBuild;
  TransferTuning transfer;
};

struct WorkerOptions {
  Role role = Role::kUnified;
  std::string name;
  std::string build;  // version of this binary
  std::string model_dir;
  std::string model_name;
  std::vector<std::string> routers;
  std::string host = "127.0.0.1";
  std::string advertised_host;           // what others connect to; empty: host
  uint16_t port = 0;                     // 0: the system chooses
  uint16_t data_port = 0;                // likewise
  std::optional<uint16_t> metrics_port;  // of the admin port; 0: the system chooses; nothing: none
  std::string metrics_tls = "off";       // of that port: off, on or require
  // Where others reach data_port through what stands between, endpoints as a transport gives them;
  // empty: where it listens.
  std::string advertised_data;
  TlsFiles tls;  // of gRPC to and from routers, and of KV over tcp; none: without TLS
  WorkerTuning tuning;
  ServerLimits server;
  TraceTuning trace;
};

}  // namespace tandem
