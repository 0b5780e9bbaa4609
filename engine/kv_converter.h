#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kvstore/kv_convert.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// Brings KV that came in other layouts into the pool: on the pool's device, many extents at once.
// Thread: one at a time, whatever else uses the Ops.
class KvConverter {
 public:
  // `pool` lies as `layout`, in memory of `device`; that and `ops` outlive this. Errors as
  // Device::NewStream.
  static absl::StatusOr<std::unique_ptr<KvConverter>> Create(Device& device, Ops& ops,
                                                             const KvLayout& layout,
                                                             const KvPoolView& pool);

  // The tokens of `wanted` that `extent` holds, of a sequence that lies as `from`, are to go to
  // `blocks`, that sequence's in the pool. `extent` stays as it is until Run returned.
  void Add(const KvLayout& from, const SequenceExtent& extent, TokenSpan wanted,
           std::span<const int32_t> blocks);
  // Converts all that was added and waits for the device. Once it returned nothing is read or
  // written any more; when it failed the places hold nothing.
  absl::Status Run();

 private:
  struct OfOneLayout {
    KvLayout from;
    std::vector<KvRun> runs;
  };

  KvConverter(Ops& ops, const KvLayout& layout, const KvPoolView& pool,
              std::unique_ptr<Stream> stream)
      : ops_(ops), layout_(layout), pool_(pool), stream_(std::move(stream)) {}

  Ops& ops_;
  const KvLayout layout_;
  const KvPoolView pool_;
  const std::unique_ptr<Stream> stream_;
  std::vector<OfOneLayout> added_;
};

}  // namespace tandem
