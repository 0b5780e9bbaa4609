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

// A device with a model on it that is simulated: a parameter file (docs/cost_model.md) whose section
// "simulated" says what the step times do not (docs/simulated.md). A value: any thread.
struct SimulatedDevice {
  std::string name;  // "qwen3-8b-h200"
  CostParameters parameters;
  KvLayout kv;  // of the model; block_tokens is the default
  int32_t vocab_size = 0;
  std::vector<int32_t> eos_token_ids;
  int32_t max_context_tokens = 0;
  int64_t kv_tokens = 0;        // that the device's memory holds; 0: not said
  int32_t max_step_tokens = 0;  // 0: not said
  int32_t max_sequences = 0;    // 0: not said
  OutputLengths lengths;
  uint64_t fingerprint = 0;  // of all of the above; never 0

  int64_t BytesPerToken() const { return kv.BytesPerToken(); }
};

// `model`: whose tokens are given out, because a tokenizer for it is there; its shape is also that of
// a file without a section "simulated", such as `tandem profile` writes. May be null. Accepts any
// bytes. Errors are those of ParseCostParameters, and INVALID_ARGUMENT names the field of the section
// that is missing, unknown or out of range.
absl::StatusOr<SimulatedDevice> ParseSimulatedDevice(std::string_view text,
                                                     const ModelConfig* model);

// The same of a file, with the model of `model_dir` unless that is empty. Errors name the file.
absl::StatusOr<SimulatedDevice> LoadSimulatedDevice(const std::string& path,
                                                    const std::string& model_dir = "");

}  // namespace tandem
