#include "kernels/cuda/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "base/rng.h"
#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/sample_errors.h"

namespace tandem::cuda {
namespace {

// Alternatives per row that memory is made for ahead: the most that the API lets a client ask for.
constexpr size_t kExpectedLogprobs = 20;

size_t ResultBytes(size_t rows, size_t alternatives) {
  return rows * sizeof(DeviceSampledToken) + alternatives * sizeof(DeviceTokenLogprob);
}

size_t RoomFor(size_t rows, size_t ids) {
  return CallStaging::RoomFor<DeviceSampleRow>(rows) + CallStaging::RoomFor<int32_t>(ids);
}

}  // namespace

size_t Sampler::PlanBytes(const WorkLimits& limits) {
  return RoomFor(static_cast<size_t>(limits.max_logit_rows),
                 static_cast<size_t>(limits.max_total_tokens));
}

absl::Status Sampler::Reserve(const WorkLimits& limits) {
  const auto rows = static_cast<size_t>(limits.max_logit_rows);
  const size_t bytes = ResultBytes(rows, rows * kExpectedLogprobs);
  max_planned_ids_ = static_cast<size_t>(limits.max_total_tokens);
  RETURN_IF_ERROR(work_.Reserve(SampleScratchBytes(limits.max_logit_rows, limits.vocab_size)));
  RETURN_IF_ERROR(results_.Reserve(bytes));
  if (bytes > host_results_.size()) {
    ASSIGN_OR_RETURN(host_results_, device_.AllocateHost(bytes));
  }
  rows_.reserve(rows);
  return absl::OkStatus();
}

void Sampler::Describe(std::span<const SampleRow> rows) {
  rows_.clear();
  ids_.clear();
  alternatives_ = 0;
  // Appends a list to ids_ if it is `used`; returns where it begins there.
  const auto add = [this](std::span<const int32_t> ids, bool used) {
    const auto begin = static_cast<int32_t>(ids_.size());
    if (used) ids_.insert(ids_.end(), ids.begin(), ids.end());
    return begin;
  };
  for (const SampleRow& row : rows) {
    const int32_t prompt_begin = add(row.prompt_ids, HasPenalties(row));
    const int32_t output_begin = add(row.output_ids, HasPenalties(row));
    const int32_t excluded_begin = add(row.excluded_ids, true);
    const int32_t allowed_begin = add(row.allowed_ids, true);
    const auto biases_begin = static_cast<int32_t>(ids_.size());
    for (const TokenBias& entry : row.biases) {
      ids_.push_back(entry.token_id);
      ids_.push_back(std::bit_cast<int32_t>(entry.bias));
    }
    rows_.push_back({
        .temperature = row.temperature,
        .top_p = row.top_p,
        .min_p = row.min_p,
        .repetition_penalty = row.repetition_penalty,
        .presence_penalty = row.presence_penalty,
        .frequency_penalty = row.frequency_penalty,
        .top_k = row.top_k,
        .num_logprobs = row.num_logprobs,
        .uniform = UniformAt(row.seed, static_cast<uint64_t>(row.position)),
        .prompt_begin = prompt_begin,
        .output_begin = output_begin,
        .excluded_begin = excluded_begin,
        .allowed_begin = allowed_begin,
        .biases_begin = biases_begin,
        .ids_end = static_cast<int32_t>(ids_.size()),
        .given_token = row.given_token,
        .logprobs_begin = static_cast<int32_t>(alternatives_),
    });
    alternatives_ += static_cast<size_t>(std::max(row.num_logprobs, 0));
  }
}

// Lists of allowed tokens may be longer than what a plan has room for: then Sample uploads them.
SamplePlan Sampler::Plan(std::span<const SampleRow> rows, StepStaging& staging) {
  Describe(rows);
  if (ids_.size() > max_planned_ids_) return {};
  planned_ = {.rows = staging.Add(std::span<const DeviceSampleRow>(rows_)).device(),
              .ids = staging.Add(std::span<const int32_t>(ids_)).device()};
  return {&planned_};
}

absl::Status Sampler::Launch(CudaStream& stream, const LaunchTarget& on, const SampleArgs& args) {
  const auto* const planned = static_cast<const Described*>(args.plan.data);
  if (planned == nullptr) Describe(args.rows);
  const size_t bytes = ResultBytes(args.rows.size(), alternatives_);
  const auto num_rows = static_cast<int32_t>(args.rows.size());
  const auto vocab = static_cast<int32_t>(args.logits.shape[1]);
  ASSIGN_OR_RETURN(std::byte* const work,
                   work_.GetZeroed(stream, SampleScratchBytes(num_rows, vocab)));
  ASSIGN_OR_RETURN(std::byte* const results, results_.Get(stream, bytes));
  if (bytes > host_results_.size()) {
    ASSIGN_OR_RETURN(host_results_, device_.AllocateHost(std::bit_ceil(bytes)));
  }
  const size_t room = planned == nullptr ? RoomFor(rows_.size(), ids_.size()) : 0;
  ASSIGN_OR_RETURN(CallStaging::Call call, staging_.Begin(stream, room));
  const Described described =
      planned != nullptr ? *planned
                         : Described{.rows = call.Add(std::span<const DeviceSampleRow>(rows_)),
                                     .ids = call.Add(std::span<const int32_t>(ids_))};
  auto* const sampled = reinterpret_cast<DeviceSampledToken*>(results);
  const SampleLaunch launch = {
      .logits = args.logits.Row<float>(0),
      .row_stride = args.logits.row_stride,
      .num_rows = num_rows,
      .vocab = vocab,
      .rows = described.rows,
      .token_ids = described.ids,
      .scratch = work,
      .sampled = sampled,
      .top = reinterpret_cast<DeviceTokenLogprob*>(sampled + num_rows),
  };
  RETURN_IF_ERROR(call.Upload(stream));
  RETURN_IF_CUDA_ERROR(cuda::Sample(on, launch), "sample");
  RETURN_IF_ERROR(call.End(stream));
  return stream.Copy(host_results_.bytes().first(bytes), {results, bytes});
}

absl::Status Sampler::Collect(const SampleArgs& args) const {
  const auto* const sampled = reinterpret_cast<const DeviceSampledToken*>(host_results_.data());
  const auto* const top = reinterpret_cast<const DeviceTokenLogprob*>(sampled + args.rows.size());
  for (size_t row = 0; row < args.rows.size(); ++row) {
    if (sampled[row].token_id == kRowOverflowed) return OverflowedRow(row);
    if (sampled[row].token_id == kRowAllExcluded) return AllExcluded(row);
    SampledToken& out = args.out[row];
    out.token_id = sampled[row].token_id;
    out.logprob = sampled[row].logprob;
    out.top.clear();
    for (int32_t i = 0; i < rows_[row].num_logprobs; ++i) {
      const DeviceTokenLogprob& alternative = top[rows_[row].logprobs_begin + i];
      out.top.push_back({alternative.token_id, alternative.logprob});
    }
  }
  return absl::OkStatus();
}

absl::Status Sampler::Sample(CudaStream& stream, const LaunchTarget& on, const SampleArgs& args) {
  RETURN_IF_ERROR(Launch(stream, on, args));
  ASSIGN_OR_RETURN(const std::unique_ptr<Event> done, stream.Record());
  RETURN_IF_ERROR(done->Synchronize());
  return Collect(args);
}

}  // namespace tandem::cuda
