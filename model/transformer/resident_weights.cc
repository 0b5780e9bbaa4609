#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "model/transformer/weight_layout.h"
#include "model/transformer/weight_loader.h"
#include "model/transformer/weight_store.h"

namespace tandem {
namespace {

LayerWeights ViewsOf(const LayerLayout& placed, std::byte* memory) {
  return {.attention_norm = placed.attention_norm.In(memory),
          .qkv = placed.qkv.In(memory),
          .qkv_bias = placed.qkv_bias.In(memory),
          .q_norm = placed.q_norm.In(memory),
          .k_norm = placed.k_norm.In(memory),
          .output = placed.output.In(memory),
          .output_bias = placed.output_bias.In(memory),
          .mlp_norm = placed.mlp_norm.In(memory),
          .gate_up = placed.gate_up.In(memory),
          .down = placed.down.In(memory)};
}

// What the packing thread needs, released when it ends.
struct Packing {
  WeightLayout layout;
  std::unique_ptr<Checkpoint> checkpoint;
  Backend backend;
  std::unique_ptr<Stream> stream;
  LoadProgress progress;
  WeightsHashed hashed;
};

// All weights in one buffer of the device. Groups are numbered in the order of a forward pass:
// 0 the embedding, 1 + i layer i, and last the head. The packing thread writes the buffer, and a
// group's memory is read only after it has been counted into num_packed_; all else is fixed before
// the thread starts.
class ResidentWeights final : public WeightStore {
 public:
  ResidentWeights(DeviceBuffer buffer, Packing packing)
      : buffer_(std::move(buffer)), embedding_(packing.layout.embedding.In(buffer_.data())) {
    const WeightLayout& layout = packing.layout;
    for (const LayerLayout& layer : layout.layers) {
      layers_.push_back(ViewsOf(layer, buffer_.data()));
    }
    const bool tied = layout.lm_head.sources.empty();
    head_ = {.final_norm = layout.final_norm.In(buffer_.data()),
             .lm_head = tied ? embedding_ : layout.lm_head.In(buffer_.data())};
    packing_ = std::thread([this, packing = std::move(packing)] {
      NameThisThread("weights");
      Pack(packing);
    });
  }

  ~ResidentWeights() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    packing_.join();
  }

  absl::StatusOr<PackedMatrix> Embedding() override {
    RETURN_IF_ERROR(AwaitGroup(0));
    return embedding_;
  }

  absl::StatusOr<LayerWeights> Layer(int32_t layer) override {
    TANDEM_CHECK(layer >= 0 && static_cast<size_t>(layer) < layers_.size(), "no such layer");
    RETURN_IF_ERROR(AwaitGroup(1 + static_cast<size_t>(layer)));
    return layers_[layer];
  }

  absl::StatusOr<HeadWeights> Head() override {
    RETURN_IF_ERROR(AwaitGroup(1 + layers_.size()));
    return head_;
  }

  bool addresses_are_fixed() const override { return true; }
  bool has_codes() const override {
    return embedding_.format.has_codes() || head_.lm_head.format.has_codes() ||
           std::ranges::any_of(layers_, [](const LayerWeights& layer) {
             return layer.qkv.format.has_codes() || layer.output.format.has_codes() ||
                    layer.gate_up.format.has_codes() || layer.down.format.has_codes();
           });
  }
  absl::StatusOr<bool> loaded() const override {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failure_);
    return num_packed_ == layers_.size() + 2;
  }
  int64_t resident_bytes() const override { return static_cast<int64_t>(buffer_.size()); }

 private:
  absl::Status AwaitGroup(size_t group) {
    absl::MutexLock lock(&mutex_);
    const auto settled = [this, group]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return num_packed_ > group || !failure_.ok();
    };
    mutex_.Await(absl::Condition(&settled));
    return failure_;
  }

  // Runs on the packing thread until all is packed, packing fails, or the store is destroyed.
  void Pack(const Packing& packing) {
    const absl::Status status = PackGroups(packing);
    if (status.ok()) return;
    absl::MutexLock lock(&mutex_);
    failure_ = Annotate(status, "the weights could not be loaded");
  }

  absl::Status PackGroups(const Packing& packing) {
    const WeightLayout& layout = packing.layout;
    WeightLoader loader({.layout = layout,
                         .checkpoint = *packing.checkpoint,
                         .ops = *packing.backend.ops,
                         .stream = *packing.stream,
                         .memory = buffer_.data(),
                         .progress = packing.progress});
    RETURN_IF_ERROR(loader.Load(layout.embedding));
    RETURN_IF_ERROR(loader.Await());
    for (const LayerLayout& layer : layout.layers) {
      if (!CountPacked()) return absl::OkStatus();
      RETURN_IF_ERROR(loader.Load(layer));
      RETURN_IF_ERROR(loader.Await());
    }
    if (!CountPacked()) return absl::OkStatus();
    RETURN_IF_ERROR(loader.Load(layout.final_norm));
    RETURN_IF_ERROR(loader.Load(layout.lm_head));
    RETURN_IF_ERROR(loader.Await());
    if (packing.hashed) packing.hashed(loader.hash());
    CountPacked();
    return absl::OkStatus();
  }

  // Announces that one more group can be read. False when the store is being destroyed.
  bool CountPacked() {
    absl::MutexLock lock(&mutex_);
    ++num_packed_;
    return !stopping_;
  }

  const DeviceBuffer buffer_;
  const PackedMatrix embedding_;
  std::vector<LayerWeights> layers_;
  HeadWeights head_;
  mutable absl::Mutex mutex_;
  size_t num_packed_ ABSL_GUARDED_BY(mutex_) = 0;  // groups that can be read
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::thread packing_;  // last, because it uses all other members
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightStore>> LoadResidentWeights(
    const ModelConfig& config, std::unique_ptr<Checkpoint> checkpoint, Device& device,
    Backend backend, WeightsAs weights_as, LoadProgress progress, WeightsHashed hashed) {
  Packing packing{.checkpoint = std::move(checkpoint),
                  .backend = std::move(backend),
                  .progress = std::move(progress),
                  .hashed = std::move(hashed)};
  ASSIGN_OR_RETURN(packing.layout,
                   PlanWeights(config, *packing.checkpoint, *packing.backend.ops, weights_as));
  ASSIGN_OR_RETURN(DeviceBuffer buffer, device.Allocate(packing.layout.packed_bytes));
  ASSIGN_OR_RETURN(packing.stream, device.NewStream());
  return std::make_unique<ResidentWeights>(std::move(buffer), std::move(packing));
}

}  // namespace tandem
