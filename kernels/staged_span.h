#pragma once

#include <concepts>
#include <cstddef>
#include <span>

namespace tandem {

// A small array of a step: the host writes it, checks it and plans with it, kernels read it. Reads
// like a std::span of the host's copy. `device()` is the same content where kernels find it, or
// null while it has not been copied there; an op that is given such an array copies it itself. A
// step stages all its arrays in one copy (kernels/step_staging.h). Owns nothing.
template <class T>
class StagedSpan {
 public:
  constexpr StagedSpan() = default;
  template <class Range>
  requires(std::convertible_to<const Range&, std::span<const T>>) StagedSpan(const Range& host)
      : host_(host) {}  // implicit: an array that is not staged
  constexpr StagedSpan(std::span<const T> host, const T* device) : host_(host), device_(device) {}

  constexpr std::span<const T> host() const { return host_; }
  constexpr const T* device() const { return device_; }

  constexpr size_t size() const { return host_.size(); }
  constexpr bool empty() const { return host_.empty(); }
  constexpr const T* data() const { return host_.data(); }
  constexpr const T& operator[](size_t i) const { return host_[i]; }
  constexpr const T& front() const { return host_.front(); }
  constexpr const T& back() const { return host_.back(); }
  constexpr auto begin() const { return host_.begin(); }
  constexpr auto end() const { return host_.end(); }

  constexpr StagedSpan subspan(size_t offset, size_t count) const {
    return {host_.subspan(offset, count), device_ == nullptr ? nullptr : device_ + offset};
  }
  constexpr StagedSpan first(size_t count) const { return subspan(0, count); }
  constexpr StagedSpan last(size_t count) const { return subspan(size() - count, count); }

 private:
  std::span<const T> host_;
  const T* device_ = nullptr;
};

}  // namespace tandem
