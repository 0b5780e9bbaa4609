#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "kernels/op_args.h"
#include "kvstore/codec/kv_sensitivity.h"
#include "kvstore/eviction_policy.h"
#include "kvstore/kv_layout.h"
#include "kvstore/kv_store.h"
#include "model/checkpoint/model_config.h"
#include "scheduler/latency_model/step_model.h"
#include "scheduler/options.h"

namespace tandem {

// What an engine knows, when it starts, of the time that its steps take (docs/cost_model.md).
struct StartCosts {
  // Coefficients that were measured before, on this machine with this model; StepModel::Create
  // accepts them.
  std::optional<StepCoefficients> steps;
  double error = 0;        // error of `steps`: mean of |predicted - measured| / measured
  Duration measure_for{};  // without `steps`: how long to measure steps first; 0: not at all
};

enum class Role : uint8_t { kUnified, kPrefill, kDecode };

struct EngineOptions {
  Role role = Role::kUnified;
  KvLayout layout;
  int32_t num_blocks = 0;  // of the KV pool; 0: as many as device_memory_fraction leaves
  // The share of the device's memory for weights, activations and KV together, unless the device is
  // the host.
  double device_memory_fraction = 0.9;
  int64_t reserved_device_bytes = 0;  // device memory that the caller will allocate later
  int32_t max_context_tokens = 0;     // prompt and output together; at most the model's
  SchedulerOptions scheduler;         // total_blocks and block_tokens are set by the engine
  uint64_t model_fingerprint = 0;
  uint64_t epoch = 0;  // unique per incarnation
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  EvictionKind eviction = EvictionKind::kLru;
  int64_t host_bytes = 0;              // budget of the host tier; 0: no host tier
  CodecId host_codec = CodecId::kRaw;  // see KvStoreOptions
  size_t inbox_capacity = 4096;
  SplitMode splits = SplitMode::kBalanced;  // of attention's context; kFixed is batch-invariant
  Duration reservation_lease = std::chrono::seconds(3);
  int32_t max_waiting_reservations = 256;  // reservations that wait for room; more are refused
  Duration max_reservation_wait = std::chrono::seconds(30);
  // Slots for frames of peers with another layout. Each takes device memory for the largest extent
  // of this model. A frame that finds no free slot is sent again. Role decode.
  int32_t conversion_slots = 32;
  // The least KV in bytes that is posted at a time: layers of a chunk with less are posted together
  // with the next layers, and those of a prompt's last chunk after its first token. A post wakes
  // the transport's thread, which takes the engine some 40 us on a virtual machine and would delay
  // the TTFT of short prompts. Role prefill.
  int64_t least_post_bytes = int64_t{1} << 20;
  // The codec of the KV of hand-offs where the peer reads it; none: for each stream the codec that
  // is expected to transfer it the fastest (docs/hand_off.md). Only KV in the host's memory is
  // encoded.
  std::optional<CodecId> wire_codec;
  bool probes_codecs = false;  // KvEncoder::Options::probes
  // The sensitivity of the model, which decides which layers' KV is rounded in finer steps on the
  // way to decode workers; empty: all alike. Role prefill.
  KvSensitivity kv_sensitivity;
  int32_t codec_threads = 2;  // threads that encode (role prefill) or decode (role decode); 0: none
  // The directory to whose files the KV of hand-offs is written; kv_dump_bytes limits their total
  // size (KvDumper). Role prefill, with a pool in the host's memory. Empty: nothing is written.
  std::string kv_dump_directory;
  uint64_t kv_dump_bytes = uint64_t{256} << 20;
  StartCosts costs;
  // How long an idle engine runs no step before it runs one of a single token, to show that steps
  // work (Engine::computed_at); 0: never.
  Duration canary_interval{};
  bool share_kv = false;  // the KV pool is memory that other processes can open (Device::Share)
  bool check_invariants = false;  // after every step; tests and debug builds
};

// Checks whether an engine with these options can serve `model`: INVALID_ARGUMENT names the option
// and its value.
absl::Status CheckOptions(const EngineOptions& options, const ModelConfig& model);

}  // namespace tandem
