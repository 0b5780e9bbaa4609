#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/support/step_gate.h"
#include "tests/support/test_model.h"
#include "transfer/transport.h"

namespace tandem {

struct TestEngineSetup {
  Role role = Role::kUnified;
  std::string checkpoint = "tests/golden/checkpoints/llama2";
  std::string device = TestDevice();
  int num_threads = 1;
  int32_t num_blocks = 64;
  int32_t max_waiting_reservations = 256;
  Duration max_reservation_wait = std::chrono::seconds(30);
  int32_t conversion_slots = 32;
  int64_t least_post_bytes = EngineOptions().least_post_bytes;
  int32_t block_tokens = 8;
  int32_t max_context_tokens = 0;  // 0: the model's
  SchedulerOptions scheduler;
  uint64_t epoch = 7;
  Duration reservation_lease = std::chrono::hours(1);
  size_t inbox_capacity = 4096;
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  int64_t host_bytes = 0;
  DType kv_dtype = DType::kBF16;
  std::optional<CodecId> wire_codec;
  bool probes_codecs = false;
  KvSensitivity kv_sensitivity;
  int32_t codec_threads = EngineOptions().codec_threads;
  std::string kv_dump_directory;
  SplitMode splits = SplitMode::kBalanced;
  StartCosts costs;
  Duration canary_interval{};
  bool gated = true;  // false: steps do not pass the gate, so that those of decodes are recorded
  const Clock* clock = nullptr;  // null: the real one
  // Makes the device that the engine uses of the model's; null: that one itself.
  std::function<std::unique_ptr<Device>(Device&)> wrap_device;
};

// An engine with its model, its gate and its transport, invariants checked after every step, taken
// down in the right order.
class TestEngine {
 public:
  explicit TestEngine(const TestEngineSetup& setup);
  ~TestEngine();

  Engine* operator->() { return engine_.get(); }
  Engine& engine() { return *engine_; }
  StepGate& gate() { return gate_; }
  const KvLayout& layout() const { return engine_->options().layout; }
  const ModelConfig& model() const { return model_->config; }
  Device& device() { return *model_->backend.device; }

  void Connect(std::unique_ptr<Transport> transport);
  Transport& transport() { return *transport_; }
  // Ends the engine and its transport before another step completes, as a killed worker looks to
  // its peers.
  void Die();

  // Reserve, waited for. Layout and model are filled in where they are not.
  absl::StatusOr<Reservation> Reserve(ReserveRequest request);
  absl::StatusOr<Reservation> ReserveFor(const EngineRequest& request);
  // ... whose KV comes in `layout`.
  absl::StatusOr<Reservation> ReserveFor(const EngineRequest& request, const KvLayout& layout);
  // ... that does not wait for room: CANCELLED when there is none.
  absl::StatusOr<Reservation> ReserveAtOnce(const ReserveRequest& request);
  // What is passed to Engine::Reserve for that.
  ReserveRequest ReservationFor(const EngineRequest& request) const;
  // ... for a prompt that nobody else has.
  absl::StatusOr<Reservation> Reserve(int32_t prompt_tokens, int32_t max_tokens);
  // Waits until the engine thread has handled all that it was told before. Role decode.
  void Settle();
  // Stats when nothing is held any more, or what is.
  ::testing::AssertionResult AtRest();

 private:
  uint64_t reserved_ = 1u << 20;  // seeds of prompts that nobody else has
  SteadyClock real_clock_;
  StepGate gate_;
  std::unique_ptr<TestModel> model_;
  std::unique_ptr<Device> wrapped_device_;
  std::unique_ptr<GatedWeights> weights_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Transport> transport_;
};

// A request with `prompt`, greedy, that no stop token ends.
EngineRequest Greedy(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens);
// Serves requests whose outputs are short, so that the engine expects more of them and admits more
// sequences than it has room for.
void ExpectShortOutputs(TestEngine& engine);
// `count` token ids of a vocabulary, drawn by `seed`.
std::vector<int32_t> RandomPrompt(uint64_t seed, int32_t count, int32_t vocab_size);

}  // namespace tandem
