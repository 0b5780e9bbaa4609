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

// The transports of KV between workers, the fastest kind first.
inline constexpr std::string_view kTransports[] = {"ipc", "nccl", "shm", "tcp"};

struct TransferTuning {
  std::string transport = "auto";                // or a list of kTransports, separated by commas
  uint64_t buffer_bytes = uint64_t{64} << 20;    // shared memory of a prefill worker
  uint64_t bandwidth = 0;                        // payload per second to each peer; 0: no limit
  Duration bandwidth_burst = kDefaultRateBurst;  // no flag; see FramedOptions::rate_burst
  int64_t least_post_bytes = EngineOptions().least_post_bytes;  // no flag; see EngineOptions
  std::string probe = "on";                   // whether links to decode workers are probed: on, off
  TlsFiles tls;                               // for KV over tcp; none: those of WorkerOptions
  std::shared_ptr<TlsRefusals> tls_refusals;  // no flag: counts connections that tcp refuses
  std::string codec = "auto";                 // of KV in transit: auto, raw, f3, mask-rice, probe
  int32_t codec_threads = EngineOptions().codec_threads;
  std::string dump_directory;  // where the KV of hand-offs is dumped; empty: nowhere
  uint64_t dump_bytes = EngineOptions().kv_dump_bytes;
  int32_t lease_ms = 3000;                 // how long a reservation is kept
  int32_t max_waiting_reservations = 256;  // that wait for room at a decode worker
  double max_reservation_wait_seconds = 30;
};

// The tuning flags of a worker, the same for all workers that `tandem up` starts. Where 0 has no
// other meaning, the worker chooses the value.
struct WorkerTuning {
  std::string device = "cpu";
  double simulated_slowdown = 1;  // factor by which steps of a simulated device are slower
  int32_t threads = 0;            // 0: one per core
  int64_t kv_tokens = 0;          // size of the KV pool; 0: from kv_bytes
  // Size of the KV pool. 0: on the CPU sixteen full contexts, at most 1 GiB; on other devices what
  // device_memory_fraction leaves.
  uint64_t kv_bytes = 0;
  // The share of a GPU's memory for weights, activations and KV; nothing:
  // kDefaultDeviceMemoryFraction.
  std::optional<double> device_memory_fraction;
  int32_t block_tokens = 16;
  std::string weights = "stored";  // one of kWeightsAsNames
  std::string kv_dtype = "auto";   // type of KV; auto: that of the weights
  int32_t max_step_tokens = 0;     // token budget of a step; 0: 512 on the CPU, 2048 on a GPU
  int32_t max_prefill_chunk = 0;   // 0: up to max_step_tokens
  int32_t max_sequences = 0;       // most admitted sequences; 0: 64 on the CPU, 256 on a GPU
  int32_t max_waiting = 1024;
  int32_t max_context = 0;              // most tokens of a sequence; 0: the model's limit
  std::string prefix_cache = "on";      // on, off
  std::string eviction = "lru";         // policy for cached blocks: lru, cost-aware
  uint64_t host_kv_bytes = 0;           // host memory for KV that leaves the device; 0: none
  std::string host_kv_codec = "raw";    // codec of KV in host memory: raw, f3, mask-rice
  std::string schedule = "fair";        // fair, deadline
  double max_wait_seconds = 30;         // a sequence that has waited longer goes first
  std::string cost_model;               // parameter file of `tandem profile`; empty: none
  double profile_at_start_seconds = 2;  // to measure steps without cost_model; 0: no profile
  // A worker is ready only while a step has ended within this time; an idle worker runs canary
  // steps to show that. 0: not required.
  double progress_seconds = 30;
  bool batch_invariant = false;  // whether attention sums in the same order for every batch
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
  std::string advertised_host;           // address that others connect to; empty: host
  uint16_t port = 0;                     // 0: the system chooses
  uint16_t data_port = 0;                // port that receives KV; 0: the system chooses
  std::optional<uint16_t> metrics_port;  // admin port; 0: the system chooses; nothing: none
  std::string metrics_tls = "off";       // TLS of the admin port: off, on or require
  // The address by which others reach data_port through a proxy or an address translation, as
  // endpoints of a transport; empty: the address where it listens.
  std::string advertised_data;
  TlsFiles tls;  // for gRPC to and from routers, and for KV over tcp; none: without TLS
  WorkerTuning tuning;
  ServerLimits server;
  TraceTuning trace;
};

}  // namespace tandem
