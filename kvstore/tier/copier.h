#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/ids.h"
#include "kernels/device.h"
#include "kernels/op_args.h"
#include "kvstore/kv_layout.h"
#include "kvstore/tier/store_block.h"

namespace tandem {

enum class CopyDirection : uint8_t { kToHost, kToDevice };

// One block of the pool and its place in a store block.
struct BlockPlace {
  BlockId block;
  int32_t index = 0;
};

// The copy of one store block, or of a part of it to the device.
struct SlabCopy {
  std::span<std::byte> slab;
  uint64_t chained_hash = 0;
  int32_t num_blocks = 0;  // of the whole store block
  std::vector<BlockPlace> places;
};

struct CopyDone {
  uint64_t id = 0;
  Duration took{};                     // from its first byte to its last
  std::vector<absl::Status> statuses;  // per store block

  absl::Status FirstError() const;  // or OK
};

// The thread that moves KV between the device and the host. Copies run one after another on a
// stream of its own; a store block is sealed behind its copy to the host and verified ahead of the
// copy to the device, so that no byte of a damaged one gets there.
// Whoever posts a copy keeps its blocks pinned and its slabs leased until it has ended; that bounds
// the queue. What computes or reads these blocks must have ended before: streams of the CPU run
// inline.
// Thread-safe; `wake` is called on the copier's thread.
class Copier {
 public:
  struct Options {
    KvLayout layout;
    uint64_t layout_fingerprint = 0;
    KvPoolView pool;
    std::function<void()> wake;  // may be empty
  };

  Copier(const Options& options, std::unique_ptr<Stream> stream);
  ~Copier() { Stop(); }

  // Returns the id under which Drain will report it.
  uint64_t Post(CopyDirection direction, std::vector<SlabCopy> slabs);
  // What has ended since the last call.
  std::vector<CopyDone> Drain() { return done_.Drain(); }
  // Runs what was posted, then ends the thread.
  void Stop();

 private:
  struct Job {
    uint64_t id = 0;
    CopyDirection direction = CopyDirection::kToHost;
    std::vector<SlabCopy> slabs;
  };

  void Run();
  CopyDone Execute(const Job& job);
  absl::Status CopyOut(const SlabCopy& copy);
  absl::Status CopyIn(const SlabCopy& copy);
  std::span<std::byte> DeviceExtent(int32_t layer, BlockId block) const;
  StoreBlockName NameOf(const SlabCopy& copy) const;

  const Options options_;
  const StoreBlockShape shape_;
  const std::unique_ptr<Stream> stream_;
  uint64_t last_id_ = 0;  // engine thread
  BoundedQueue<Job> jobs_;
  BoundedQueue<CopyDone> done_;
  std::thread thread_;
};

}  // namespace tandem
