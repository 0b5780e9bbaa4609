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
#include "kvstore/tier/store_encoder.h"

namespace tandem {

enum class CopyDirection : uint8_t { kToHost, kToDevice };

// One block of the pool and its index in a store block.
struct BlockPlace {
  BlockId block;
  int32_t index = 0;
};

// The copy of one store block in either direction; to the device it may be a part of one.
struct SlabCopy {
  std::span<std::byte> slab;
  uint64_t chained_hash = 0;
  int32_t num_blocks = 0;  // number of blocks in the whole store block
  bool encoded = false;    // whether the slab holds the store block as the encoder makes it
  std::vector<BlockPlace> places;
};

struct CopyDone {
  uint64_t id = 0;
  Duration took{};                     // from the first byte to the last
  std::vector<absl::Status> statuses;  // per store block

  absl::Status FirstError() const;  // OK when there is none
};

// Moves KV between the device and the host. Each direction has a thread and a stream, so that
// copies to the device do not queue behind copies to the host. Copies of one direction run one
// after another. A store block may be encoded or decoded on the way, in a buffer that each
// direction has. It is sealed after its copy to the host and verified before its copy to the
// device, so that no byte of a damaged store block reaches the device.
//
// The caller keeps the blocks pinned and the slabs leased until the copy has ended, which bounds
// the queues. All other users of the blocks run on `compute`, and two rules order copies with them:
//  - A copy starts after everything that was queued on `compute` before its Post: the operations
//    that compute the blocks being read, and those that may still read the previous content of the
//    blocks being written.
//  - Nothing that is queued on `compute` while a copy is in flight writes its blocks, because they
//    are pinned, or reads the blocks being written, because no table holds them yet. Completion is
//    reported after the last byte, so operations queued later see all of them.
//
// Post, Drain and Stop: engine thread, whose stream `compute` is. `wake` is called on the copier's
// threads.
class Copier {
 public:
  struct Options {
    KvLayout layout;
    uint64_t layout_fingerprint = 0;
    KvPoolView pool;
    std::function<void()> wake;       // may be empty
    StoreEncoder* encoder = nullptr;  // null: nothing is encoded; outlives the copier
  };

  // `compute` must outlive the copier. Returns the errors of Device::NewStream.
  static absl::StatusOr<std::unique_ptr<Copier>> Create(const Options& options, Device& device,
                                                        Stream& compute);
  ~Copier() { Stop(); }

  bool encodes() const { return options_.encoder != nullptr; }
  // The shape of raw store blocks in slabs: whole ones or, where slabs are sized for encoded store
  // blocks, as many blocks as fit raw.
  const StoreBlockShape& raw_shape() const { return raw_shape_; }

  // Starts to copy `slabs`, and returns the id under which Drain will report the end of the copy.
  uint64_t Post(CopyDirection direction, std::vector<SlabCopy> slabs);
  // Returns the copies that ended since the last call.
  std::vector<CopyDone> Drain() { return done_.Drain(); }
  // Finishes all posted copies, then ends the threads.
  void Stop();

 private:
  struct Job {
    uint64_t id = 0;
    std::vector<SlabCopy> slabs;
    absl::StatusOr<std::unique_ptr<Event>> after;  // event of `compute` that the copy waits for
  };

  // Queue, stream and thread of one direction.
  struct Lane {
    Lane(std::unique_ptr<Stream> its_stream, DeviceBuffer its_raw);

    const std::unique_ptr<Stream> stream;
    DeviceBuffer raw;  // a store block before it is encoded, or after it was decoded
    BoundedQueue<Job> jobs;
    std::thread thread;
  };

  // The stream and the buffer that one direction (Lane) needs.
  struct Means {
    std::unique_ptr<Stream> stream;
    DeviceBuffer raw;
  };
  static absl::StatusOr<Means> MeansOf(const Options& options, Device& device);

  Copier(const Options& options, Stream& compute, Means out, Means in);
  void Run(CopyDirection direction);
  CopyDone Execute(CopyDirection direction, const Job& job);
  absl::Status CopyOut(const SlabCopy& copy);
  absl::Status CopyIn(const SlabCopy& copy);
  // A raw store block in the memory of the host.
  struct RawBlock {
    const StoreBlockShape& shape;
    std::span<std::byte> bytes;
  };
  RawBlock InSlab(const SlabCopy& copy) const { return {raw_shape_, copy.slab}; }
  // The buffer of `lane`, which holds the raw form of a store block that is encoded or decoded.
  RawBlock OnTheWay(Lane& lane) const { return {shape_, lane.raw.bytes()}; }
  // Moves the blocks of `copy` between the device and `host`.
  absl::Status Move(CopyDirection direction, const SlabCopy& copy, const RawBlock& host);
  absl::Status QueueMoves(Stream& stream, CopyDirection direction, const SlabCopy& copy,
                          const RawBlock& host) const;
  std::span<std::byte> DeviceExtent(int32_t layer, BlockId block) const;
  StoreBlockName NameOf(const SlabCopy& copy) const;
  Lane& LaneOf(CopyDirection direction) { return direction == CopyDirection::kToHost ? out_ : in_; }

  const Options options_;
  const StoreBlockShape shape_;
  const StoreBlockShape raw_shape_;
  Stream& compute_;
  uint64_t last_id_ = 0;  // used on the engine thread alone
  BoundedQueue<CopyDone> done_;
  Lane out_;  // last, because the threads of the lanes use all other members
  Lane in_;
};

}  // namespace tandem
