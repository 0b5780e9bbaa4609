#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/handoff/kv_dumper.h"
#include "kvstore/kv_parts.h"
#include "transfer/transport.h"

namespace tandem {

// What was posted for one request, on all of its streams. Thread-safe.
class PostedKv {
 public:
  // From now on extents go to `dump` as well; an earlier one is dropped, since all KV is posted anew.
  void SetDump(std::unique_ptr<KvDumpBuffer> dump);
  // Null where there is none.
  std::unique_ptr<KvDumpBuffer> TakeDump();

  // Frames that were posted, of any kind.
  void Add(std::span<const PostedExtent> frames);
  // The parts of extents of KV among them: `parts` has one for each of `extents`.
  void AddParts(std::span<const PostedExtent> extents, std::span<const ExtentParts> parts);

  uint64_t frames() const;
  uint64_t payload_bytes() const;
  KvParts parts() const;

 private:
  mutable absl::Mutex mutex_;
  uint64_t frames_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t payload_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  KvParts parts_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<KvDumpBuffer> dump_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
