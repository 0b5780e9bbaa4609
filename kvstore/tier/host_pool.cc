#include "kvstore/tier/host_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr int64_t kMaxSlabs = 1 << 24;

int64_t PhysicalBytes() { return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }

// If the pages may not be locked, the pool works all the same, but under memory pressure copies may
// wait for the swap device.
void FillInAndLock(std::span<std::byte> memory) {
  if (mlock(memory.data(), memory.size()) == 0) return;
  LogWarn("host_pool_not_locked bytes={} error=\"{}\" hint=\"raise RLIMIT_MEMLOCK\"", memory.size(),
          std::strerror(errno));
  madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE);  // best effort
}

}  // namespace

HostSlab::~HostSlab() {
  if (pool_ == nullptr) return;
  TANDEM_CHECK(pool_->used_[index_], "a slab was given back twice");
  pool_->used_[index_] = false;
  pool_->free_.push_back(index_);
}

std::span<std::byte> HostSlab::bytes() const {
  TANDEM_CHECK(pool_ != nullptr, "the bytes of no slab");
  return pool_->memory_.bytes().subspan(index_ * pool_->slab_bytes_, pool_->slab_bytes_);
}

absl::StatusOr<std::unique_ptr<HostPool>> HostPool::Create(Device& device, int64_t budget_bytes,
                                                           size_t slab_bytes) {
  if (budget_bytes > PhysicalBytes()) {
    return ResourceExhausted("host tier of {} bytes: the machine has {}", budget_bytes,
                             PhysicalBytes());
  }
  const int64_t num_slabs = budget_bytes / static_cast<int64_t>(slab_bytes);
  if (num_slabs < 1 || num_slabs > kMaxSlabs) {
    return InvalidArgument(
        "host tier of {} bytes: a store block takes {} bytes: give between 1 and {} of them, or 0 "
        "for none",
        budget_bytes, slab_bytes, kMaxSlabs);
  }
  auto memory = device.AllocateHost(static_cast<size_t>(num_slabs) * slab_bytes);
  if (!memory.ok()) {
    return Annotate(memory.status(), fmt::format("host tier of {} bytes", budget_bytes));
  }
  if (device.is_host()) FillInAndLock(memory->bytes());
  return std::unique_ptr<HostPool>(
      new HostPool(*std::move(memory), slab_bytes, static_cast<int32_t>(num_slabs)));
}

HostPool::HostPool(DeviceBuffer memory, size_t slab_bytes, int32_t num_slabs)
    : memory_(std::move(memory)), slab_bytes_(slab_bytes), used_(num_slabs, false) {
  free_.reserve(num_slabs);
  for (int32_t i = num_slabs - 1; i >= 0; --i) free_.push_back(i);
}

HostPool::~HostPool() { TANDEM_CHECK(num_free() == num_slabs(), "a lease outlived the host pool"); }

std::optional<HostSlab> HostPool::Take() {
  if (free_.empty()) return std::nullopt;
  const int32_t index = free_.back();
  free_.pop_back();
  used_[index] = true;
  return HostSlab(this, index);
}

absl::Status HostPool::CheckInvariants() const {
  std::vector<bool> is_free(used_.size(), false);
  for (const int32_t index : free_) {
    if (index < 0 || index >= num_slabs()) return Internal("free list holds slab {}", index);
    if (is_free[index] || used_[index]) return Internal("slab {} is free twice or in use", index);
    is_free[index] = true;
  }
  for (int32_t i = 0; i < num_slabs(); ++i) {
    if (!is_free[i] && !used_[i]) return Internal("slab {} is neither free nor in use", i);
  }
  return absl::OkStatus();
}

}  // namespace tandem
