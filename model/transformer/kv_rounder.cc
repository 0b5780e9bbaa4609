#include "model/transformer/kv_rounder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "model/transformer/activations.h"

namespace tandem {
namespace {

constexpr int32_t kPartRows = 128;
constexpr int64_t kWidestNarrow = 2;  // bytes of an f16 or bf16: nothing wider is widened to f32

KvPoolView ExtentOf(std::byte* memory, DType dtype, const KvPoolView& pool) {
  return {.data = memory,
          .dtype = dtype,
          .num_layers = 1,
          .num_blocks = 1,
          .num_kv_heads = pool.num_kv_heads,
          .block_tokens = kPartRows,
          .head_dim = pool.head_dim};
}

}  // namespace

KvRounder::KvRounder(Ops& ops, DeviceBuffer memory)
    : ops_(&ops), memory_(std::move(memory)), slots_(kPartRows) {
  std::iota(slots_.begin(), slots_.end(), 0);
}

absl::StatusOr<KvRounder> KvRounder::Create(const ModelConfig& config, Device& device, Ops& ops) {
  const int64_t bytes =
      2 * int64_t{config.num_kv_heads} * config.head_dim * kPartRows * kWidestNarrow;
  ASSIGN_OR_RETURN(DeviceBuffer memory, device.Allocate(bytes));
  return KvRounder(ops, std::move(memory));
}

absl::Status KvRounder::Round(Stream& stream, std::span<const RoundedRows> rows,
                              const StoreKvArgs& store) {
  for (const RoundedRows& range : rows) {
    for (int32_t done = 0; done < range.num_rows; done += kPartRows) {
      const RoundedRows part = {.first_row = range.first_row + done,
                                .num_rows = std::min(kPartRows, range.num_rows - done),
                                .dtype = range.dtype};
      RETURN_IF_ERROR(RoundPart(stream, part, store));
    }
  }
  return absl::OkStatus();
}

absl::Status KvRounder::RoundPart(Stream& stream, const RoundedRows& part,
                                  const StoreKvArgs& store) {
  const KvPoolView rounded = ExtentOf(memory_.data(), part.dtype, store.pool);
  FindRuns(part, store, rounded);
  RETURN_IF_ERROR(ops_->StoreKv(
      stream, {.k = Rows(store.k, part.first_row, part.num_rows),
               .v = Rows(store.v, part.first_row, part.num_rows),
               .slots = std::span<const int64_t>(slots_).first(static_cast<size_t>(part.num_rows)),
               .pool = rounded,
               .layer = 0}));
  return ops_->ConvertKv(
      stream,
      {.pool = store.pool, .src_dtype = part.dtype, .src_block_tokens = kPartRows, .runs = runs_});
}

// Finds the runs of a part: rows whose slots lie side by side in one block of the pool make one
// run.
void KvRounder::FindRuns(const RoundedRows& part, const StoreKvArgs& store,
                         const KvPoolView& rounded) {
  runs_.clear();
  const std::span<const std::byte> extent(rounded.data, static_cast<size_t>(rounded.ExtentBytes()));
  const int32_t block_tokens = store.pool.block_tokens;
  for (int32_t row = 0; row < part.num_rows; ++row) {
    const int64_t slot = store.slots[static_cast<size_t>(part.first_row + row)];
    if (slot < 0) continue;
    const LayerBlock dst = {store.layer, static_cast<int32_t>(slot / block_tokens)};
    const auto token = static_cast<int32_t>(slot % block_tokens);
    if (!runs_.empty()) {
      KvRun& last = runs_.back();
      if (last.dst.block == dst.block && last.dst_token + last.num_tokens == token &&
          last.src_token + last.num_tokens == row) {
        ++last.num_tokens;
        continue;
      }
    }
    runs_.push_back(
        {.src = extent, .src_token = row, .dst = dst, .dst_token = token, .num_tokens = 1});
  }
}

}  // namespace tandem
