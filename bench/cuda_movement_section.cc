#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <vector>

#include "base/status.h"
#include "bench/cuda_sections.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/memory/extents.h"

namespace tandem {
namespace {

constexpr int32_t kLayers = 36;
constexpr int32_t kQueryHeads = 32;
constexpr int32_t kKvHeads = 8;
constexpr int32_t kHeadDim = 128;
constexpr int32_t kBlockTokens = 16;
constexpr int32_t kOtherBlockTokens = 64;
constexpr double kMovedShare = 0.85;    // of the copy ceiling
constexpr double kMovedCounts = 100e6;  // bytes from which on a share of it is asked for
constexpr double kStoreSlack = 1.3;     // over its bytes at the copy ceiling, for many tokens
constexpr double kStoreSmallUs = 4;     // for the tokens of a decode step

// At a share of the ceiling; nothing is asked of what a launch outweighs.
std::optional<TimeLimits> Moved(const CudaBench& bench, double bytes, double share) {
  if (bench.ceilings().copy_tbps <= 0 || bytes < kMovedCounts) return std::nullopt;
  const double us = bytes / (share * bench.ceilings().copy_tbps) * 1e-6;
  return TimeLimits{us, us};
}

absl::StatusOr<KvPoolView> NewPool(CudaBench& bench, CaseMemory& memory, int64_t num_blocks,
                                   int32_t block_tokens = kBlockTokens) {
  KvPoolView pool = {.dtype = DType::kBF16,
                     .num_layers = kLayers,
                     .num_blocks = static_cast<int32_t>(num_blocks),
                     .num_kv_heads = kKvHeads,
                     .block_tokens = block_tokens,
                     .head_dim = kHeadDim};
  ASSIGN_OR_RETURN(const TensorView data,
                   bench.Normal(memory, DType::kBF16,
                                {kLayers * num_blocks, pool.ExtentBytes() / SizeOf(pool.dtype)}));
  pool.data = static_cast<std::byte*>(data.data);
  return pool;
}

std::vector<int32_t> RandomOrder(int32_t count) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(2));
  return order;
}

absl::Status AddMove(CudaBench& bench, CudaVariant variant, std::string op, std::string shape,
                     const OpCost& cost, std::optional<TimeLimits> limits) {
  if (!bench.Wanted(op, shape)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto times, bench.Time({&variant, 1}, bench.LaunchesOf(cost.bytes)));
  bench.Add({.section = "movement",
             .op = std::move(op),
             .shape = std::move(shape),
             .variant = variant.name,
             .timing = times[0],
             .cost = cost,
             .bound = Bound::kCopy,
             .limits = limits});
  return absl::OkStatus();
}

// The same to staging, as Stream::CopyAll does it. This row has no target: CopyAll limits its warps
// (kMovingWarps in kernels/cuda/memory/extents.cu) so that it leaves the device to the forward
// passes.
absl::Status AddHashedMove(CudaBench& bench, const MoveBlocksArgs& move, const std::string& shape) {
  const auto extent_bytes = static_cast<size_t>(move.pool.ExtentBytes());
  ASSIGN_OR_RETURN(const DeviceBuffer hashes,
                   bench.device().AllocateHost(move.items.size() * sizeof(uint64_t)));
  std::vector<cuda::ExtentBatch> batches;
  for (size_t i = 0; i < move.items.size(); ++i) {
    const size_t place = i % cuda::ExtentBatch::kMaxExtents;
    if (place == 0) {
      batches.emplace_back();
      batches.back().hashes = reinterpret_cast<uint64_t*>(hashes.data()) + i;
    }
    const auto [layer, block] = move.items[i];
    const auto extent = static_cast<size_t>(int64_t{layer} * move.pool.num_blocks + block);
    batches.back().extents[place] = {move.pool.data + extent * extent_bytes,
                                     move.staging.data() + i * extent_bytes, extent_bytes};
    batches.back().num_extents = static_cast<int32_t>(place) + 1;
  }
  const cudaStream_t stream = bench.target().stream;
  const CudaVariant variant = {
      "ours", [&](int32_t) {
        for (const cuda::ExtentBatch& batch : batches) {
          RETURN_IF_CUDA_ERROR(cuda::MoveAndHash(stream, batch, cuda::ExtentPath::kDevice), "copy");
        }
        return absl::OkStatus();
      }};
  return AddMove(bench, variant, "copy_all", shape, Cost(move), std::nullopt);
}

// All layers of half the blocks of a pool, in random order: to staging, back, and to the other
// half.
absl::Status RunMoves(CudaBench& bench, int64_t blocks) {
  CaseMemory memory(bench.device());
  const int64_t moved = bench.Scaled(blocks, 2);
  ASSIGN_OR_RETURN(const KvPoolView pool, NewPool(bench, memory, 2 * moved));
  const std::vector<int32_t> order = RandomOrder(pool.num_blocks);
  std::vector<LayerBlock> items;
  std::vector<int2> device_items;
  std::vector<BlockPair> pairs;
  for (int64_t i = 0; i < moved; ++i) {
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      items.push_back({layer, order[i]});
      device_items.push_back(make_int2(layer, order[i]));
    }
    pairs.push_back({order[i], order[moved + i]});
  }
  ASSIGN_OR_RETURN(const int2* on_items, bench.Upload(memory, std::span<const int2>(device_items)));
  ASSIGN_OR_RETURN(const BlockPair* on_pairs,
                   bench.Upload(memory, std::span<const BlockPair>(pairs)));
  const auto staging_bytes = static_cast<size_t>(std::ssize(items) * pool.ExtentBytes());
  ASSIGN_OR_RETURN(std::byte * staging, memory.Take(static_cast<int64_t>(staging_bytes)));
  const MoveBlocksArgs move = {pool, items, {staging, staging_bytes}};
  const CopyBlocksArgs copy = {pool, {pairs, on_pairs}};
  const cuda::LaunchTarget on = bench.target();
  const std::string shape = fmt::format("{} blocks of {} layers", moved, kLayers);
  const auto limits = [&bench](const OpCost& cost) {
    return Moved(bench, cost.bytes, kMovedShare);
  };
  RETURN_IF_ERROR(AddMove(
      bench,
      {"ours",
       [&](int32_t) { return cuda::ToStatus(cuda::GatherBlocks(on, move, on_items), "gather"); }},
      "gather_blocks", shape, Cost(move), limits(Cost(move))));
  RETURN_IF_ERROR(AddMove(
      bench,
      {"ours",
       [&](int32_t) { return cuda::ToStatus(cuda::ScatterBlocks(on, move, on_items), "scatter"); }},
      "scatter_blocks", shape, Cost(move), limits(Cost(move))));
  RETURN_IF_ERROR(AddMove(
      bench, {"ours", [&](int32_t) { return cuda::ToStatus(cuda::CopyBlocks(on, copy), "copy"); }},
      "copy_blocks", shape, Cost(copy), limits(Cost(copy))));
  return AddHashedMove(bench, move, shape);
}

// What an eviction moves: half of the tokens of a context, in each KV head others, brought together
// in the other half of a pool whose blocks lie in random order. Nothing is asked of it: rows of one
// head are too short for the rate of whole extents.
absl::Status RunTokens(CudaBench& bench, int64_t blocks) {
  const int64_t context = bench.Scaled(blocks, 2);
  const int64_t kept = context * kBlockTokens / 2;
  const std::string shape = fmt::format("{} tokens of {} layers", kept, kLayers);
  if (!bench.Wanted("copy_tokens", shape)) return absl::OkStatus();
  CaseMemory memory(bench.device());
  CopyTokensArgs copy;
  ASSIGN_OR_RETURN(copy.pool, NewPool(bench, memory, 2 * context));
  const std::vector<int32_t> order = RandomOrder(copy.pool.num_blocks);
  const auto slot_of = [&order](int64_t block, int64_t token) {
    return order[block + token / kBlockTokens] * kBlockTokens +
           static_cast<int32_t>(token % kBlockTokens);
  };
  std::vector<int32_t> all, from, to;
  for (int64_t i = 0; i < context * kBlockTokens; ++i) all.push_back(slot_of(0, i));
  std::mt19937 rng(3);
  for (int32_t head = 0; head < kLayers * copy.pool.num_kv_heads; ++head) {
    std::sample(all.begin(), all.end(), std::back_inserter(from), kept, rng);
  }
  for (int64_t i = 0; i < kept; ++i) to.push_back(slot_of(context, i));
  ASSIGN_OR_RETURN(const int32_t* on_from, bench.Upload(memory, std::span<const int32_t>(from)));
  ASSIGN_OR_RETURN(const int32_t* on_to, bench.Upload(memory, std::span<const int32_t>(to)));
  copy.from = from;
  copy.to = to;
  const cuda::LaunchTarget on = bench.target();
  return AddMove(bench,
                 {"ours",
                  [&](int32_t) {
                    return cuda::ToStatus(cuda::CopyTokens(on, copy, on_from, on_to),
                                          "copy tokens");
                  }},
                 "copy_tokens", shape, Cost(copy), std::nullopt);
}

// Extents of blocks of 16 tokens, each to its quarter of a block of 64, as a hand-off from a worker
// of another layout brings them: `extents` at once, in as many sets as exceed the cache. Nothing is
// asked of it: it leaves most of the device to the passes beside it.
absl::Status RunConversion(CudaBench& bench, int64_t extents, DType from) {
  constexpr int32_t kQuarters = kOtherBlockTokens / kBlockTokens;
  const int64_t count = bench.Scaled(extents, kQuarters) / kQuarters * kQuarters;
  const std::string shape = fmt::format("{} extents, {} by {} to {} by {}", count, Name(from),
                                        kBlockTokens, Name(DType::kBF16), kOtherBlockTokens);
  if (!bench.Wanted("convert_kv", shape)) return absl::OkStatus();
  CaseMemory memory(bench.device());
  const int64_t extent_values = int64_t{2} * kKvHeads * kBlockTokens * kHeadDim;
  const int64_t extent_bytes = extent_values * SizeOf(from);
  const int64_t sets =
      bench.SetsOf(static_cast<double>(count * extent_values * (SizeOf(from) + 2)));
  const int64_t blocks = (sets * count / kQuarters + kLayers - 1) / kLayers;
  ConvertKvArgs convert = {.src_dtype = from, .src_block_tokens = kBlockTokens};
  ASSIGN_OR_RETURN(convert.pool, NewPool(bench, memory, blocks, kOtherBlockTokens));
  // Random halves of bf16: their bytes are numbers of f8e4m3 as well, or its NaN.
  ASSIGN_OR_RETURN(const TensorView sources,
                   bench.Normal(memory, DType::kBF16, {sets * count, extent_bytes / 2}));
  const auto* const source = static_cast<const std::byte*>(sources.data);
  const std::vector<int32_t> order = RandomOrder(static_cast<int32_t>(blocks));
  std::vector<KvRun> runs;
  for (int64_t i = 0; i < sets * count; ++i) {
    const int64_t place = i / kQuarters;
    runs.push_back({.src = {source + i * extent_bytes, static_cast<size_t>(extent_bytes)},
                    .dst = {static_cast<int32_t>(place % kLayers), order[place / kLayers]},
                    .dst_token = static_cast<int32_t>(i % kQuarters) * kBlockTokens,
                    .num_tokens = kBlockTokens});
  }
  const auto set = [&](int64_t i) {
    return std::span<const KvRun>(runs).subspan(static_cast<size_t>(i % sets * count),
                                                static_cast<size_t>(count));
  };
  convert.runs = set(0);
  const OpCost cost = Cost(convert);
  const cuda::LaunchTarget on = bench.target();
  const CudaVariant variant = {"ours", [&](int32_t launch) {
                                 convert.runs = set(launch);
                                 return cuda::ToStatus(cuda::ConvertKv(on, convert), "convert");
                               }};
  ASSIGN_OR_RETURN(const auto times, bench.Time({&variant, 1}, bench.LaunchesOf(cost.bytes)));
  bench.Add({.section = "movement",
             .op = "convert_kv",
             .shape = shape,
             .variant = variant.name,
             .timing = times[0],
             .cost = cost,
             .bound = Bound::kCopy});
  return absl::OkStatus();
}

// The arrays of the fused rotation and store for some tokens, as many sets as exceed the cache.
struct StoreCase {
  explicit StoreCase(Device& device) : memory(device) {}

  CaseMemory memory;
  TensorView qkv;  // [sets * T, (Hq + 2 Hkv) D]
  RopeArgs rope;
  StoreKvArgs store;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  int64_t tokens = 0;
  int64_t sets = 0;

  // Columns [begin, begin + heads * D) of the set's rows.
  TensorView Heads(int64_t set, int64_t begin, int64_t heads) const {
    uint16_t* data = qkv.Row<uint16_t>(set * tokens) + begin;
    return TensorView(data, DType::kBF16, {tokens, heads, kHeadDim}).WithRowStride(qkv.row_stride);
  }
  void Use(int32_t launch) {
    const int64_t set = launch % sets;
    rope.q = Heads(set, 0, kQueryHeads);
    rope.k = Heads(set, kQueryHeads * kHeadDim, kKvHeads);
    store.k = rope.k;
    store.v = Heads(set, (kQueryHeads + kKvHeads) * kHeadDim, kKvHeads);
    store.layer = static_cast<int32_t>(launch % store.pool.num_layers);
  }
};

absl::StatusOr<std::unique_ptr<StoreCase>> NewStoreCase(CudaBench& bench, int64_t tokens) {
  auto made = std::make_unique<StoreCase>(bench.device());
  StoreCase& c = *made;
  c.tokens = tokens;
  constexpr int64_t kWidth = (kQueryHeads + 2 * kKvHeads) * kHeadDim;
  c.sets = bench.SetsOf(static_cast<double>(tokens * kWidth * SizeOf(DType::kBF16)));
  ASSIGN_OR_RETURN(c.qkv, bench.Normal(c.memory, DType::kBF16, {c.sets * tokens, kWidth}));
  ASSIGN_OR_RETURN(c.store.pool,
                   NewPool(bench, c.memory, (tokens + kBlockTokens - 1) / kBlockTokens + 1));
  const std::vector<int32_t> order = RandomOrder(c.store.pool.num_blocks);
  for (int64_t t = 0; t < tokens; ++t) {
    c.positions.push_back(static_cast<int32_t>(t));
    c.slots.push_back(int64_t{order[t / kBlockTokens]} * kBlockTokens + t % kBlockTokens);
  }
  ASSIGN_OR_RETURN(const int32_t* positions,
                   bench.Upload(c.memory, std::span<const int32_t>(c.positions)));
  ASSIGN_OR_RETURN(const int64_t* slots, bench.Upload(c.memory, std::span<const int64_t>(c.slots)));
  c.rope.positions = {std::span<const int32_t>(c.positions), positions};
  c.store.slots = {std::span<const int64_t>(c.slots), slots};
  // An eighth of a turn: what is rotated in place, launch after launch, keeps its length.
  const std::vector<float> eighth(static_cast<size_t>(tokens * kHeadDim / 2), 0.70710678f);
  ASSIGN_OR_RETURN(const float* turn, bench.Upload(c.memory, std::span<const float>(eighth)));
  c.rope.cos = TensorView(const_cast<float*>(turn), DType::kF32, {tokens, kHeadDim / 2});
  c.rope.sin = c.rope.cos;
  ASSIGN_OR_RETURN(c.rope.q_norm, bench.Normal(c.memory, DType::kF32, {kHeadDim}));
  ASSIGN_OR_RETURN(c.rope.k_norm, bench.Normal(c.memory, DType::kF32, {kHeadDim}));
  c.Use(0);
  return made;
}

absl::Status RunStore(CudaBench& bench, int64_t tokens) {
  const int64_t scaled = bench.Scaled(tokens);
  const std::string shape = fmt::format("{} tokens, norm over heads", scaled);
  if (!bench.Wanted("rope_store_kv", shape)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto c, NewStoreCase(bench, scaled));
  const OpCost cost = Cost(c->rope, c->store);
  const cuda::LaunchTarget on = bench.target();
  const CudaVariant variant = {"ours", [&](int32_t launch) {
                                 c->Use(launch);
                                 return cuda::ToStatus(cuda::RopeStoreKv(on, c->rope, c->store),
                                                       "rope and store");
                               }};
  ASSIGN_OR_RETURN(const auto times, bench.Time({&variant, 1}, bench.LaunchesOf(cost.bytes)));
  const bool small = tokens <= 64;
  bench.Add({.section = "movement",
             .op = "rope_store_kv",
             .shape = shape,
             .variant = variant.name,
             .timing = times[0],
             .cost = cost,
             .bound = Bound::kCopy,
             .limits = small ? TimeLimits{kStoreSmallUs, kStoreSmallUs}
                             : Moved(bench, cost.bytes, 1 / kStoreSlack)});
  return absl::OkStatus();
}

}  // namespace

absl::Status MovementSection(CudaBench& bench) {
  for (const int64_t blocks : {8, 64, 512})
    RETURN_IF_ERROR(bench.Tolerate(RunMoves(bench, blocks)));
  for (const int64_t blocks : {8, 512}) RETURN_IF_ERROR(bench.Tolerate(RunTokens(bench, blocks)));
  for (const int64_t extents : {32, 2048}) {
    for (const DType from : {DType::kBF16, DType::kF8E4M3}) {
      RETURN_IF_ERROR(bench.Tolerate(RunConversion(bench, extents, from)));
    }
  }
  for (const int64_t tokens : {1, 64, 4096, 16384})
    RETURN_IF_ERROR(bench.Tolerate(RunStore(bench, tokens)));
  return absl::OkStatus();
}

}  // namespace tandem
