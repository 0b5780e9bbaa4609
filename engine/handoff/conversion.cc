#include "engine/handoff/conversion.h"

#include <algorithm>

#include "base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<KvConverter>> KvConverter::Create(Device& device, Ops& ops,
                                                                 const KvLayout& layout,
                                                                 const KvPoolView& pool) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream());
  return std::unique_ptr<KvConverter>(new KvConverter(ops, layout, pool, std::move(stream)));
}

void KvConverter::Add(const KvLayout& from, const SequenceExtent& extent, TokenSpan wanted,
                      std::span<const int32_t> blocks) {
  auto place = std::ranges::find(added_, from, &OfOneLayout::from);
  if (place == added_.end()) place = added_.insert(place, {.from = from, .runs = {}});
  AppendRuns(from, extent, wanted, layout_, blocks, place->runs);
}

absl::Status KvConverter::Run() {
  absl::Status status;
  for (const auto& [from, runs] : added_) {
    status.Update(ops_.ConvertKv(*stream_, {.pool = pool_,
                                            .src_dtype = from.dtype,
                                            .src_block_tokens = from.block_tokens,
                                            .runs = runs}));
  }
  added_.clear();
  status.Update(stream_->Synchronize());
  return status;
}

}  // namespace tandem
