#include "server/commands/flags.h"

#include "CLI/CLI.hpp"
#include "server/commands/number_flag.h"
#include "server/commands/size_flag.h"
#include "server/commands/transfer_flags.h"

namespace tandem {

namespace {

constexpr char kTuningGroup[] = "Tuning of workers";

void AddKvFlags(CLI::App& app, WorkerTuning& tuning) {
  app.add_option("--prefix-cache", tuning.prefix_cache,
                 "keep the KV of prompts for requests that begin alike: on, off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str()
      ->group(kTuningGroup);
  app.add_option("--eviction", tuning.eviction, "which cached block makes room: lru, cost-aware")
      ->check(CLI::IsMember({"lru", "cost-aware"}))
      ->capture_default_str()
      ->group(kTuningGroup);
  app.add_option("--host-kv-bytes", tuning.host_kv_bytes,
                 "locked host memory for preempted and cached KV, as 256MiB; 0: none, then "
                 "what is preempted is computed again")
      ->transform(SizeFlag(Kilo::k1024))
      ->capture_default_str()
      ->group(kTuningGroup);
  app.add_option(
         "--host-kv-codec", tuning.host_kv_codec,
         "how KV lies in that memory: raw; f3 or mask-rice, which are lossless and keep more "
         "of it, but not of KV that --kv-dtype makes integers of")
      ->check(CLI::IsMember({"raw", "f3", "mask-rice"}))
      ->capture_default_str()
      ->group(kTuningGroup);
  app.add_option("--schedule", tuning.schedule,
                 "among equal priorities: fair (between tenants), deadline (nearest first)")
      ->check(CLI::IsMember({"fair", "deadline"}))
      ->capture_default_str()
      ->group(kTuningGroup);
  app.add_option("--max-wait", tuning.max_wait_seconds,
                 "seconds after which a waiting request goes before all others")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str()
      ->group(kTuningGroup);
}

void AddDeviceFlags(CLI::App& app, WorkerTuning& tuning) {
  const std::string group = kTuningGroup;
  app.add_option("--device", tuning.device,
                 "where to compute: cpu, cpu-bf16 (activations are rounded to bf16 where weights "
                 "or KV are of bf16, or weights of 8 bits, which is faster where the processor "
                 "multiplies bf16 itself), cpu-auto (the faster of both, measured at the start), "
                 "or cuda:0 and so on; simulated:FILE takes the times of a parameter file and "
                 "makes tokens up")
      ->capture_default_str()
      ->group(group);
  app.add_option("--simulated-slowdown", tuning.simulated_slowdown,
                 "a simulated device takes this many times as long as its parameters say")
      ->check(CLI::Range(0.01, 1000.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--threads", tuning.threads, "threads of one worker; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-tokens", tuning.kv_tokens, "size of the KV pool in tokens")
      ->check(Positive())
      ->group(group);
  app.add_option("--kv-bytes", tuning.kv_bytes,
                 "size of the KV pool, as 512MiB; default: on the CPU sixteen contexts, at most "
                 "1GiB, on a GPU what --device-memory-fraction leaves")
      ->transform(SizeFlag(Kilo::k1024))
      ->group(group);
  app.add_option(
         "--device-memory-fraction", tuning.device_memory_fraction,
         "share of the GPU's memory for weights, activations, KV and buffers of transfers of one "
         "worker; default: 0.9, which workers that are started together share")
      ->check(CLI::Range(0.01, 1.0))
      ->group(group);
  app.add_option("--block-tokens", tuning.block_tokens, "tokens of one KV block")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--weights", tuning.weights,
         "stored: kept as the checkpoint has them; int8: 8-bit integers with a scale per 32 "
         "inputs, made while they load: about half the memory of bf16, and half of what a step of "
         "few tokens reads; int8-layers: the same, but embedding and head stay as stored. All "
         "workers of a router must have the same")
      ->check(CLI::IsMember({"stored", "int8", "int8-layers"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-dtype", tuning.kv_dtype,
                 "KV is kept as this; auto: as the weights. k8v8, k6v5 and k4v3 are integers of 8, "
                 "of 6 and 5, of 4 and 3 bits for K and V, with a scale per token, head and 64 "
                 "channels: on the CPU alone; they are sent and held on the host as they are, "
                 "without --kv-codec and --host-kv-codec")
      ->check(CLI::IsMember({"auto", "bf16", "f16", "f8e4m3", "f32", "k8v8", "k6v5", "k4v3"}))
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void AddTuningFlags(CLI::App& app, WorkerTuning& tuning) {
  const std::string group = kTuningGroup;
  AddDeviceFlags(app, tuning);
  app.add_option(
         "--max-step-tokens", tuning.max_step_tokens,
         "token budget of one step, decodes and prefill chunks together; default: 512, on a "
         "GPU 2048")
      ->check(Positive())
      ->group(group);
  app.add_option("--max-prefill-chunk", tuning.max_prefill_chunk,
                 "prompt tokens of one sequence in one step; 0: as the budget allows")
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-sequences", tuning.max_sequences,
                 "sequences computed together; default: 64, on a GPU 256")
      ->check(Positive())
      ->group(group);
  app.add_option("--max-waiting", tuning.max_waiting,
                 "requests that may wait; more are answered RESOURCE_EXHAUSTED")
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-context", tuning.max_context,
                 "tokens of prompt and output together; default: the model's")
      ->check(Positive())
      ->group(group);
  app.add_option("--cost-model", tuning.cost_model,
                 "parameter file of `tandem profile` that says what steps take here; default: none")
      ->group(group);
  app.add_option(
         "--profile-at-start", tuning.profile_at_start_seconds,
         "without --cost-model: how long a worker may measure its steps before it is ready; "
         "a request interrupts it, and it goes on when the worker is idle")
      ->transform(SecondsOrOff(600))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--progress-seconds", tuning.progress_seconds,
         "a worker is ready only while a step has ended within so many seconds, for which an "
         "idle one runs steps of one token; off: steps are not asked for")
      ->transform(SecondsOrOff(86400))
      ->capture_default_str()
      ->group(group);
  AddKvFlags(app, tuning);
  AddTransferFlags(app, tuning.transfer);
  app.add_flag("--batch-invariant", tuning.batch_invariant,
               "on a GPU: attention of a request is computed the same in every batch, a little "
               "slower (docs/cuda.md says what else may differ)")
      ->group(group);
  app.add_flag("--check-invariants", tuning.check_invariants,
               "check the bookkeeping after every step (slow); a debug build always does")
      ->group(group);
}

void AddLogFlags(CLI::App& app, LogSetup& log) {
  app.add_option("--log-level", log.level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
  app.add_option(
         "--log-format", log.format,
         "lines of the log are text, or json: one object each, with the fields of a line apart")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

void AddReadyFlag(CLI::App& app, int& ready_fd) {
  app.add_option("--ready-fd", ready_fd)->group("");
}

}  // namespace tandem
