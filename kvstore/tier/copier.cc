#include "kvstore/tier/copier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/thread_name.h"

namespace tandem {
namespace {

// The capacity of the job queues, which is never reached: the number of pinned blocks and leased
// slabs bounds them.
constexpr size_t kMaxQueued = size_t{1} << 20;

}  // namespace

absl::Status CopyDone::FirstError() const {
  const auto failed = std::ranges::find_if(statuses, [](const auto& s) { return !s.ok(); });
  return failed == statuses.end() ? absl::OkStatus() : *failed;
}

absl::StatusOr<std::unique_ptr<Copier>> Copier::Create(const Options& options, Device& device,
                                                       Stream& compute) {
  ASSIGN_OR_RETURN(Means out, MeansOf(options, device));
  ASSIGN_OR_RETURN(Means in, MeansOf(options, device));
  return std::unique_ptr<Copier>(new Copier(options, compute, std::move(out), std::move(in)));
}

absl::StatusOr<Copier::Means> Copier::MeansOf(const Options& options, Device& device) {
  Means means;
  ASSIGN_OR_RETURN(means.stream, device.NewStream());
  if (options.encoder != nullptr) {
    ASSIGN_OR_RETURN(means.raw, device.AllocateHost(StoreBlockShape(options.layout).total_bytes()));
  }
  return means;
}

Copier::Lane::Lane(std::unique_ptr<Stream> its_stream, DeviceBuffer its_raw)
    : stream(std::move(its_stream)), raw(std::move(its_raw)), jobs(kMaxQueued) {}

Copier::Copier(const Options& options, Stream& compute, Means out, Means in)
    : options_(options),
      shape_(options.layout),
      raw_shape_(options.encoder == nullptr
                     ? shape_
                     : StoreBlockShape::Fitting(options.layout, options.encoder->slab_bytes())),
      compute_(compute),
      done_(kMaxQueued),
      out_(std::move(out.stream), std::move(out.raw)),
      in_(std::move(in.stream), std::move(in.raw)) {
  for (const CopyDirection direction : {CopyDirection::kToHost, CopyDirection::kToDevice}) {
    LaneOf(direction).thread = std::thread([this, direction] { Run(direction); });
  }
}

uint64_t Copier::Post(CopyDirection direction, std::vector<SlabCopy> slabs) {
  const uint64_t id = ++last_id_;
  const bool posted = LaneOf(direction).jobs.TryPush(
      {.id = id, .slabs = std::move(slabs), .after = compute_.Record()});
  TANDEM_CHECK(posted, "a copy was posted after the end, or without a pin");
  return id;
}

void Copier::Stop() {
  for (Lane* lane : {&out_, &in_}) {
    lane->jobs.Close();
    if (lane->thread.joinable()) lane->thread.join();
  }
}

void Copier::Run(CopyDirection direction) {
  NameThisThread("kv-copies");
  for (;;) {
    const std::vector<Job> jobs = LaneOf(direction).jobs.WaitAndDrain(kNoDeadline);
    if (jobs.empty()) return;
    for (const Job& job : jobs) {
      const bool reported = done_.PushAlways(Execute(direction, job));
      TANDEM_CHECK(reported, "the queue of completions was closed");
      if (options_.wake) options_.wake();
    }
  }
}

CopyDone Copier::Execute(CopyDirection direction, const Job& job) {
  // The thread, rather than the stream, waits for the event of `compute` that precedes the copy, so
  // that the measured time is that of the copy.
  const absl::Status ready = job.after.ok() ? (*job.after)->Synchronize() : job.after.status();
  const TimePoint start = std::chrono::steady_clock::now();
  CopyDone done = {.id = job.id, .took = {}, .statuses = {}};
  for (const SlabCopy& copy : job.slabs) {
    if (!ready.ok()) {
      done.statuses.push_back(ready);
    } else if (direction == CopyDirection::kToHost) {
      done.statuses.push_back(CopyOut(copy));
    } else {
      done.statuses.push_back(CopyIn(copy));
    }
  }
  done.took = std::chrono::steady_clock::now() - start;
  return done;
}

absl::Status Copier::CopyOut(const SlabCopy& copy) {
  if (copy.encoded) {
    RETURN_IF_ERROR(Move(CopyDirection::kToHost, copy, OnTheWay(out_)));
    return options_.encoder->Seal(NameOf(copy), out_.raw.bytes(), copy.slab);
  }
  RETURN_IF_ERROR(Move(CopyDirection::kToHost, copy, InSlab(copy)));
  SealStoreBlock(raw_shape_, NameOf(copy), copy.slab);
  return absl::OkStatus();
}

absl::Status Copier::CopyIn(const SlabCopy& copy) {
  if (copy.encoded) {
    RETURN_IF_ERROR(options_.encoder->Open(NameOf(copy), copy.slab, in_.raw.bytes()));
    return Move(CopyDirection::kToDevice, copy, OnTheWay(in_));
  }
  RETURN_IF_ERROR(VerifyStoreBlock(raw_shape_, NameOf(copy), copy.slab));
  return Move(CopyDirection::kToDevice, copy, InSlab(copy));
}

// Queues the copies of all blocks and waits for them. Even if it fails, none of its copies is in
// flight after it returns.
absl::Status Copier::Move(CopyDirection direction, const SlabCopy& copy, const RawBlock& host) {
  Stream& stream = *LaneOf(direction).stream;
  const absl::Status queued = QueueMoves(stream, direction, copy, host);
  const absl::Status ended = stream.Synchronize();
  return queued.ok() ? ended : queued;
}

absl::Status Copier::QueueMoves(Stream& stream, CopyDirection direction, const SlabCopy& copy,
                                const RawBlock& host) const {
  for (int32_t layer = 0; layer < shape_.num_layers(); ++layer) {
    for (const BlockPlace& place : copy.places) {
      const std::span<std::byte> extent = host.shape.Extent(host.bytes, layer, place.index);
      const std::span<std::byte> device = DeviceExtent(layer, place.block);
      RETURN_IF_ERROR(direction == CopyDirection::kToHost ? stream.Copy(extent, device)
                                                          : stream.Copy(device, extent));
    }
  }
  return absl::OkStatus();
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
