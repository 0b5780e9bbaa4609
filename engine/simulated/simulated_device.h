#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/profile/cost_parameters.h"
#include "engine/simulated/output_lengths.h"
#include "kvstore/kv_layout.h"
#include "model/checkpoint/model_config.h"

namespace tandem {

// A simulated device with a model: a parameter file (docs/cost_model.md), whose section "simulated"
// says what its step times do not (docs/simulated.md). A plain value, for any thread.
struct SimulatedDevice {
  std::string name;  // "qwen3-8b-h200"
  CostParameters parameters;
  KvLayout kv;  // layout of the model's KV; block_tokens is the default
  int32_t vocab_size = 0;
  std::vector<int32_t> eos_token_ids;
  int32_t max_context_tokens = 0;
  int64_t kv_tokens = 0;        // tokens of KV that fit into the device's memory; 0: not given
  int32_t max_step_tokens = 0;  // 0: not given
  int32_t max_sequences = 0;    // 0: not given
  OutputLengths lengths;
  uint64_t fingerprint = 0;  // hash of all fields above; never 0

  int64_t BytesPerToken() const { return kv.BytesPerToken(); }
};

// Parses a simulated device from a parameter file; accepts any bytes. `model` gives the vocabulary,
// so that a real tokenizer fits it, and also the shape where the file has no section "simulated",
// as those of `tandem profile`. It may be null. Errors are those of ParseCostParameters, and
// INVALID_ARGUMENT names the field of the section that is missing, unknown or out of range.
absl::StatusOr<SimulatedDevice> ParseSimulatedDevice(std::string_view text,
                                                     const ModelConfig* model);

// Loads a simulated device from a file, with the model of `model_dir` unless that is empty. Errors
// name the file.
absl::StatusOr<SimulatedDevice> LoadSimulatedDevice(const std::string& path,
                                                    const std::string& model_dir = "");

}  // namespace tandem
