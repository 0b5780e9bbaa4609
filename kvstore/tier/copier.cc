#include "kvstore/tier/copier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

// Far above what pins and leases allow; the queue is bounded by these.
constexpr size_t kMaxQueued = size_t{1} << 20;

}  // namespace

absl::Status CopyDone::FirstError() const {
  const auto failed = std::ranges::find_if(statuses, [](const auto& s) { return !s.ok(); });
  return failed == statuses.end() ? absl::OkStatus() : *failed;
}

Copier::Copier(const Options& options, std::unique_ptr<Stream> stream)
    : options_(options),
      shape_(options.layout),
      stream_(std::move(stream)),
      jobs_(kMaxQueued),
      done_(kMaxQueued),
      thread_([this] { Run(); }) {}

uint64_t Copier::Post(CopyDirection direction, std::vector<SlabCopy> slabs) {
  const uint64_t id = ++last_id_;
  const bool posted = jobs_.TryPush({.id = id, .direction = direction, .slabs = std::move(slabs)});
  TANDEM_CHECK(posted, "a copy was posted after the end, or without a pin");
  return id;
}

void Copier::Stop() {
  jobs_.Close();
  if (thread_.joinable()) thread_.join();
}

void Copier::Run() {
  for (;;) {
    const std::vector<Job> jobs = jobs_.WaitAndDrain(kNoDeadline);
    if (jobs.empty()) return;
    for (const Job& job : jobs) {
      const bool reported = done_.PushAlways(Execute(job));
      TANDEM_CHECK(reported, "the queue of completions was closed");
      if (options_.wake) options_.wake();
    }
  }
}

CopyDone Copier::Execute(const Job& job) {
  const TimePoint start = std::chrono::steady_clock::now();
  CopyDone done = {.id = job.id, .took = {}, .statuses = {}};
  for (const SlabCopy& copy : job.slabs) {
    done.statuses.push_back(job.direction == CopyDirection::kToHost ? CopyOut(copy) : CopyIn(copy));
  }
  done.took = std::chrono::steady_clock::now() - start;
  return done;
}

absl::Status Copier::CopyOut(const SlabCopy& copy) {
  for (int32_t layer = 0; layer < shape_.num_layers(); ++layer) {
    for (const BlockPlace& place : copy.places) {
      RETURN_IF_ERROR(stream_->Copy(shape_.Extent(copy.slab, layer, place.index),
                                    DeviceExtent(layer, place.block)));
    }
  }
  RETURN_IF_ERROR(stream_->Synchronize());
  SealStoreBlock(shape_, NameOf(copy), copy.slab);
  return absl::OkStatus();
}

absl::Status Copier::CopyIn(const SlabCopy& copy) {
  RETURN_IF_ERROR(VerifyStoreBlock(shape_, NameOf(copy), copy.slab));
  for (int32_t layer = 0; layer < shape_.num_layers(); ++layer) {
    for (const BlockPlace& place : copy.places) {
      RETURN_IF_ERROR(stream_->Copy(DeviceExtent(layer, place.block),
                                    shape_.Extent(copy.slab, layer, place.index)));
    }
  }
  return stream_->Synchronize();
}

std::span<std::byte> Copier::DeviceExtent(int32_t layer, BlockId block) const {
  return {options_.pool.Extent(layer, block.value()),
          static_cast<size_t>(options_.pool.ExtentBytes())};
}

StoreBlockName Copier::NameOf(const SlabCopy& copy) const {
  return {.layout_fingerprint = options_.layout_fingerprint,
          .chained_hash = copy.chained_hash,
          .num_blocks = copy.num_blocks};
}

}  // namespace tandem
