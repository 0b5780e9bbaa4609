#include "engine/handoff/posted_kv.h"

#include <utility>

namespace tandem {

void PostedKv::Add(std::span<const PostedExtent> frames) {
  absl::MutexLock lock(&mutex_);
  frames_ += frames.size();
  for (const PostedExtent& frame : frames) payload_bytes_ += frame.payload.size();
}

void PostedKv::AddParts(std::span<const PostedExtent> extents, std::span<const ExtentParts> parts) {
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i].layer >= parts_.size()) parts_.resize(extents[i].layer + 1);
    parts_[extents[i].layer].Add(parts[i]);
  }
  if (dump_ != nullptr) dump_->Add(extents);
}

void PostedKv::SetDump(std::unique_ptr<KvDumpBuffer> dump) {
  absl::MutexLock lock(&mutex_);
  dump_ = std::move(dump);
}

std::unique_ptr<KvDumpBuffer> PostedKv::TakeDump() {
  absl::MutexLock lock(&mutex_);
  return std::move(dump_);
}

uint64_t PostedKv::frames() const {
  absl::MutexLock lock(&mutex_);
  return frames_;
}

uint64_t PostedKv::payload_bytes() const {
  absl::MutexLock lock(&mutex_);
  return payload_bytes_;
}

KvParts PostedKv::parts() const {
  absl::MutexLock lock(&mutex_);
  return parts_;
}

}  // namespace tandem
