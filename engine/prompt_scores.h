#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/sequence.h"
#include "kernels/device.h"
#include "kvstore/kv_layout.h"
#include "model/transformer/forward_batch.h"

namespace tandem {

// The attention that tokens of prompts receive in one step, for sequences that will evict KV:
// requests it before the forward pass and then adds it to the scores from earlier chunks. Its
// memory grows to the largest step that requests any. Thread: engine. `device` must outlive it.
class PromptScores {
 public:
  explicit PromptScores(Device& device) : device_(device) {}

  // Chooses the query rows of `chunks` (prefills first) whose attention ranks tokens.
  // RESOURCE_EXHAUSTED when the host lacks the memory.
  absl::Status Plan(std::span<const Chunk> chunks, const KvLayout& layout);
  // What to request of the forward pass of the planned chunks; valid until the next Plan.
  std::span<const MassRequest> requests() const { return requests_; }
  // Adds the attention to the sequences' scores. Call once the forward pass has ended.
  void Collect();

 private:
  Device& device_;
  DeviceBuffer memory_;
  std::vector<MassRequest> requests_;
  std::vector<AttentionScores*> scores_;  // [i] gets what requests_[i] asks for
  int32_t num_layers_ = 0;
};

}  // namespace tandem
