#include "kvstore/tier/host_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/status.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

constexpr int64_t kMaxSlabs = 1 << 24;

int64_t PhysicalBytes() { return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }

// Where the pages may not be locked the pool works as well; under memory pressure copies may then
// wait for the swap device.
void Lock(std::byte* data, size_t bytes) {
  if (mlock(data, bytes) == 0) return;
  spdlog::warn("host_pool_not_locked bytes={} error=\"{}\" hint=\"raise RLIMIT_MEMLOCK\"", bytes,
               std::strerror(errno));
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
  return {pool_->data_ + index_ * pool_->slab_bytes_, pool_->slab_bytes_};
}

absl::StatusOr<std::unique_ptr<HostPool>> HostPool::Create(int64_t budget_bytes,
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
  const size_t bytes = static_cast<size_t>(num_slabs) * slab_bytes;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("host tier of {} bytes could not be mapped: {}", bytes,
                             std::strerror(errno));
  }
  Lock(static_cast<std::byte*>(data), bytes);
  return std::unique_ptr<HostPool>(
      new HostPool(static_cast<std::byte*>(data), slab_bytes, static_cast<int32_t>(num_slabs)));
}

HostPool::HostPool(std::byte* data, size_t slab_bytes, int32_t num_slabs)
    : data_(data), slab_bytes_(slab_bytes), used_(num_slabs, false) {
  free_.reserve(num_slabs);
  for (int32_t i = num_slabs - 1; i >= 0; --i) free_.push_back(i);
}

HostPool::~HostPool() {
  TANDEM_CHECK(num_free() == num_slabs(), "a lease outlived the host pool");
  munmap(data_, used_.size() * slab_bytes_);
}

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
