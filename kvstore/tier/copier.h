#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// Moves KV between the device and the host: one thread with a stream of its own for each direction,
// so that what comes back does not queue behind what leaves. Copies of one direction run one after
// another; a store block is sealed behind its copy to the host and verified ahead of the copy to
// the device, so that no byte of a damaged one gets there.
//
// Whoever posts a copy keeps its blocks pinned and its slabs leased until it has ended; that bounds
// the queues. The blocks' other users all run on `compute`, and no more order than this is needed:
//  - Behind them. A copy begins when all that was queued on `compute` up to its Post has run: what
//    computes the blocks that leave, and what may still read the blocks that are written, for those
//    who held them before.
//  - Ahead of them. Nothing that is queued on `compute` while a copy is under way writes its blocks
//    (they are pinned), or reads those being written (nobody has them yet). The end of a copy is
//    told when its bytes are there, so whatever is queued after that comes later.
//
// Post, Drain and Stop: engine thread, whose stream `compute` is. `wake` is called on the copier's
// threads.
class Copier {
 public:
  struct Options {
    KvLayout layout;
    uint64_t layout_fingerprint = 0;
    KvPoolView pool;
    std::function<void()> wake;  // may be empty
  };

  // `compute` must outlive it. Errors as Device::NewStream.
  static absl::StatusOr<std::unique_ptr<Copier>> Create(const Options& options, Device& device,
                                                        Stream& compute);
  ~Copier() { Stop(); }

  // Returns the id under which Drain will report it.
  uint64_t Post(CopyDirection direction, std::vector<SlabCopy> slabs);
  // What has ended since the last call.
  std::vector<CopyDone> Drain() { return done_.Drain(); }
  // Runs what was posted, then ends the threads.
  void Stop();

 private:
  struct Job {
    uint64_t id = 0;
    std::vector<SlabCopy> slabs;
    absl::StatusOr<std::unique_ptr<Event>> after;  // of `compute`
  };

  // One direction: its queue, its stream, its thread.
  struct Lane {
    explicit Lane(std::unique_ptr<Stream> its_stream);

    const std::unique_ptr<Stream> stream;
    BoundedQueue<Job> jobs;
    std::thread thread;
  };

  Copier(const Options& options, Stream& compute, std::unique_ptr<Stream> out,
         std::unique_ptr<Stream> in);
  void Run(CopyDirection direction);
  CopyDone Execute(CopyDirection direction, const Job& job);
  absl::Status CopyOut(const SlabCopy& copy);
  absl::Status CopyIn(const SlabCopy& copy);
  absl::Status Move(CopyDirection direction, const SlabCopy& copy);
  absl::Status QueueMoves(Stream& stream, CopyDirection direction, const SlabCopy& copy) const;
  std::span<std::byte> DeviceExtent(int32_t layer, BlockId block) const;
  StoreBlockName NameOf(const SlabCopy& copy) const;
  Lane& LaneOf(CopyDirection direction) { return direction == CopyDirection::kToHost ? out_ : in_; }

  const Options options_;
  const StoreBlockShape shape_;
  Stream& compute_;
  uint64_t last_id_ = 0;  // engine thread
  BoundedQueue<CopyDone> done_;
  Lane out_;  // the lanes last: their threads run on all of the above
  Lane in_;
};

}  // namespace tandem
