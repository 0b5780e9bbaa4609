#include "kvstore/kv_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kvstore/prefix_mover.h"
#include "kvstore/swap.h"
#include "kvstore/tier/copier.h"
#include "kvstore/tier/store_block.h"
#include "kvstore/tier/store_encoder.h"

namespace tandem {
namespace {

constexpr int32_t kMaxBlocks = 1 << 24;

}  // namespace

struct KvStore::HostSide {
  HostSide(KvStore& store, std::unique_ptr<StoreEncoder> its_encoder,
           std::unique_ptr<Copier> its_copier)
      : encoder(std::move(its_encoder)),
        copier(std::move(its_copier)),
        mover({store.pool_, store.cache_, *store.host_pool_, store.host_tier_, *copier},
              StoreBlockShape(store.layout())),
        swap({store.pool_, store.cache_, mover, *copier}, copier->raw_shape(),
             store.layout().block_tokens) {}

  const std::unique_ptr<StoreEncoder> encoder;  // null: the host tier keeps KV raw
  const std::unique_ptr<Copier> copier;
  PrefixMover mover;
  SwapSpace swap;
};

absl::Status CheckKvType(const KvLayout& layout, const Device& device) {
  if (!IsQuantisedKv(layout.dtype) || device.is_host()) return absl::OkStatus();
  return InvalidArgument(
      "KV of type {} is served on the CPU alone, and the device is {}: use --kv-dtype bf16, f16, "
      "f8e4m3 "
      "or f32",
      Name(layout.dtype), device.name());
}

absl::StatusOr<std::unique_ptr<KvStore>> KvStore::Create(const KvStoreOptions& options,
                                                         Device& device, Stream& compute,
                                                         std::function<void()> wake) {
  const KvLayout& layout = options.layout;
  RETURN_IF_ERROR(layout.Validate());
  RETURN_IF_ERROR(CheckKvType(layout, device));
  if (options.num_blocks < 1 || options.num_blocks > kMaxBlocks) {
    return InvalidArgument("KV pool of {} blocks: give between 1 and {}", options.num_blocks,
                           kMaxBlocks);
  }
  // The memory of the pool is not touched here, because a page costs physical memory only once a
  // token is stored in it.
  const auto bytes = static_cast<size_t>(layout.BlockBytes()) * options.num_blocks;
  auto memory = options.shared ? device.AllocateShared(bytes) : device.Allocate(bytes);
  if (!memory.ok()) {
    return Annotate(memory.status(), fmt::format("KV pool of {} blocks of {} bytes",
                                                 options.num_blocks, layout.BlockBytes()));
  }
  std::unique_ptr<KvStore> store(new KvStore(options, *std::move(memory), compute));
  if (options.host_bytes != 0) RETURN_IF_ERROR(store->StartHostTier(device, std::move(wake)));
  return store;
}

KvStore::KvStore(const KvStoreOptions& options, DeviceBuffer memory, Stream& compute)
    : options_(options),
      memory_(std::move(memory)),
      compute_(compute),
      pool_(options.num_blocks),
      cache_({options.layout, Fingerprint(), options.eviction, options.journal}, pool_,
             host_tier_) {}

absl::Status KvStore::StartHostTier(Device& device, std::function<void()> wake) {
  const size_t raw_bytes = StoreBlockShape(layout()).total_bytes();
  size_t slab_bytes = raw_bytes;
  int64_t on_the_way = 0;  // what the copier sets aside, a store block for each direction
  std::unique_ptr<StoreEncoder> encoder;
  if (options_.host_codec != CodecId::kRaw) {
    ASSIGN_OR_RETURN(encoder, StoreEncoder::Create(layout(), options_.host_codec));
    slab_bytes = encoder->slab_bytes();
    on_the_way = 2 * static_cast<int64_t>(raw_bytes);
    if (options_.host_bytes <= on_the_way) {
      return InvalidArgument(
          "host tier of {} bytes: {} are for KV on its way to and from codec {}: give more",
          options_.host_bytes, on_the_way, CodecName(options_.host_codec));
    }
  }
  ASSIGN_OR_RETURN(host_pool_,
                   HostPool::Create(device, options_.host_bytes - on_the_way, slab_bytes));
  const Copier::Options options = {.layout = layout(),
                                   .layout_fingerprint = Fingerprint(),
                                   .pool = view(),
                                   .wake = std::move(wake),
                                   .encoder = encoder.get()};
  ASSIGN_OR_RETURN(std::unique_ptr<Copier> copier, Copier::Create(options, device, compute_));
  host_ = std::make_unique<HostSide>(*this, std::move(encoder), std::move(copier));
  return absl::OkStatus();
}

KvStore::~KvStore() {
  if (host_ != nullptr) host_->copier->Stop();
  compute_.Synchronize().IgnoreError();  // the results are not needed any more, so errors are not
}

std::span<std::byte> KvStore::Extent(int32_t layer, BlockId block) const {
  TANDEM_CHECK(layer >= 0 && layer < layout().num_layers, "no such layer");
  TANDEM_CHECK(pool_.count(block) > 0, "the extent of a free block");
  return {view().Extent(layer, block.value()), static_cast<size_t>(layout().ExtentBytes())};
}

// The allocation of blocks.

absl::Status KvStore::MakeFree(int32_t num_blocks) {
  if (cache_.MakeFree(num_blocks)) return absl::OkStatus();
  return ResourceExhausted("{} blocks are needed, {} of {} are available: retry later", num_blocks,
                           AvailableBlocks(), pool_.num_blocks());
}

absl::Status KvStore::Reserve(BlockTable& table, int64_t num_tokens) {
  RETURN_IF_ERROR(MakeFree(std::max(layout().BlocksFor(num_tokens) - table.num_blocks(), 0)));
  return table.Reserve(pool_, num_tokens);
}

absl::Status KvStore::MakeWritable(BlockTable& table, int64_t begin, int64_t end,
                                   BlockCopies& copies) {
  RETURN_IF_ERROR(MakeFree(table.NumShared(begin, end)));
  ASSIGN_OR_RETURN(std::vector<BlockCopy> asked, table.MakeWritable(pool_, begin, end));
  for (BlockCopy& copy : asked) {
    copies.pairs.push_back({.from = copy.from.id().value(), .to = copy.to.value()});
    // A source that other tables still hold gets no pin here. Such a pin would count as another
    // user, and the last of these tables to write would copy the block instead of using it.
    const bool in_other_tables = pool_.pins(copy.from.id()).tables > 1;
    if (!in_other_tables) copies.kept.push_back(std::move(copy.from));
  }
  copied_blocks_ += std::ssize(asked);
  return absl::OkStatus();
}

int32_t KvStore::BlocksToWrite(const BlockTable& table, int64_t begin, int64_t end) const {
  return table.NumShared(begin, end) + std::max(layout().BlocksFor(end) - table.num_blocks(), 0);
}

int32_t KvStore::BlocksGivenBack(std::span<const BlockTable> tables) const {
  const auto is_copied = [this](BlockId id) { return pool_.pins(id).copies > 0; };
  const std::vector<BlockId> held = HeldOnlyBy(pool_, tables);
  return static_cast<int32_t>(held.size() - std::ranges::count_if(held, is_copied));
}

// The methods of the prefix cache.

PrefixKey KvStore::NewKey(std::string_view salt) { return cache_.NewKey(salt); }

PrefixMatch KvStore::Match(const PrefixKey& key, std::span<const int32_t> tokens,
                           int64_t max_tokens) const {
  if (!caching()) return {};
  PrefixPath path = cache_.Find(key, tokens, max_tokens);
  const auto full = static_cast<int64_t>(path.device.size());
  const int64_t block_tokens = layout().block_tokens;
  PrefixMatch match = {.device_tokens = full * block_tokens + path.tail_tokens,
                       .host_tokens = static_cast<int64_t>(path.host.size()) * block_tokens,
                       .host_blocks = static_cast<int32_t>(path.host.size()),
                       .pending = path.restoring};
  if (path.tail != nullptr) path.device.push_back(path.tail);
  match.device_blocks = static_cast<int32_t>(path.device.size());
  match.idle_blocks = static_cast<int32_t>(std::ranges::count_if(
      path.device, [this](const PrefixNode* node) { return pool_.pins(node->block.id()).idle(); }));
  const auto hashes = key.Extend(tokens);
  const bool has_next = full < static_cast<int64_t>(hashes.size());
  match.pending |= has_next && path.host.empty() && expected_.Contains(hashes[full]);
  return match;
}

int64_t KvStore::Attach(PrefixKey& key, std::span<const int32_t> tokens, int64_t max_tokens,
                        BlockTable& table) {
  TANDEM_CHECK(table.num_blocks() == 0, "a prefix is attached to an empty table");
  if (!caching()) return 0;
  const PrefixPath path = cache_.Find(key, tokens, max_tokens);
  std::vector<BlockRef> blocks;
  for (const PrefixNode* node : path.device) blocks.push_back(node->block.Share());
  if (path.tail != nullptr) blocks.push_back(path.tail->block.Share());
  table = BlockTable::Over(layout().block_tokens, std::move(blocks));
  cache_.Hit(path);
  if (host_ != nullptr) host_->mover.WriteThrough(path);
  const int64_t attached =
      static_cast<int64_t>(path.device.size()) * layout().block_tokens + path.tail_tokens;
  query_tokens_ += std::min(max_tokens, static_cast<int64_t>(tokens.size()));
  hit_tokens_ += attached;
  return attached;
}

void KvStore::Insert(PrefixKey& key, std::span<const int32_t> tokens, int64_t num_computed,
                     const BlockTable& table) {
  if (!caching()) return;
  const int32_t before = key.cursor().blocks;
  cache_.Insert(key, tokens, num_computed, table);
  const int32_t after = key.cursor().blocks;
  if (after > before) expected_.Fulfil(key.hashes().subspan(before, after - before));
}

void KvStore::Expect(SequenceId owner, PrefixKey& key, std::span<const int32_t> tokens) {
  if (!caching()) return;
  const PrefixPath path = cache_.Find(key, tokens, static_cast<int64_t>(tokens.size()));
  expected_.Add(owner, key.Extend(tokens).subspan(path.device.size()));
}

void KvStore::Unexpect(SequenceId owner) { expected_.Remove(owner); }

absl::Status KvStore::Restore(PrefixKey& key, std::span<const int32_t> tokens) {
  if (host_ == nullptr || !caching()) return NotFound("there is no host tier");
  return host_->mover.Restore(cache_.Find(key, tokens, static_cast<int64_t>(tokens.size())));
}

void KvStore::ClearCache() { cache_.Clear(); }

// Swapping sequences to the host and back.

absl::StatusOr<SwapId> KvStore::SwapOut(std::vector<BlockTable>& tables) {
  if (host_ == nullptr) return ResourceExhausted("there is no host tier to swap to");
  return host_->swap.SwapOut(tables);
}

std::optional<int32_t> KvStore::BlocksToSwapOut(std::span<const BlockTable> tables) const {
  if (host_ == nullptr) return std::nullopt;
  return host_->swap.BlocksToSwapOut(tables);
}

// Swap ids exist only in a store with a host tier, so `host_` is not nullptr in the methods that
// take one.

int32_t KvStore::BlocksToSwapIn(SwapId id) const { return host_->swap.BlocksToSwapIn(id); }

absl::Status KvStore::SwapIn(SwapId id) { return host_->swap.SwapIn(id); }

std::vector<BlockTable> KvStore::TakeSwapped(SwapId id) { return host_->swap.TakeSwapped(id); }

void KvStore::DropSwapped(SwapId id) { host_->swap.DropSwapped(id); }

std::vector<KvCompletion> KvStore::Poll() {
  std::vector<KvCompletion> completions;
  if (host_ == nullptr) return completions;
  for (const CopyDone& done : host_->copier->Drain()) {
    if (host_->swap.Finish(done, completions)) continue;
    std::optional<KvCompletion> completion = host_->mover.Finish(done);
    TANDEM_CHECK(completion.has_value(), "a copy that nobody posted");
    completions.push_back(*std::move(completion));
  }
  if (caching()) host_->mover.DemoteAhead();
  return completions;
}

// Statistics and self-checks.

KvStats KvStore::stats() const {
  KvStats stats = {.total_blocks = pool_.num_blocks(),
                   .free_blocks = pool_.num_free(),
                   .cached_blocks = pool_.num_cached(),
                   .idle_blocks = pool_.num_idle(),
                   .shared_blocks = pool_.num_shared(),
                   .pinned_blocks = pool_.num_copying(),
                   .copied_blocks = copied_blocks_,
                   .evicted_blocks = cache_.num_evicted(),
                   .hit_tokens = hit_tokens_,
                   .query_tokens = query_tokens_,
                   .host_budget_bytes = options_.host_bytes};
  if (host_ == nullptr) return stats;
  const int64_t used_slabs = host_pool_->num_slabs() - host_pool_->num_free();
  stats.host_used_bytes = used_slabs * static_cast<int64_t>(host_pool_->slab_bytes());
  stats.host_prefix_blocks = host_tier_.num_blocks();
  stats.swapped_blocks = host_->swap.num_blocks();
  stats.swapped_out_blocks = host_->swap.num_swapped_out();
  stats.swapped_in_blocks = host_->swap.num_swapped_in();
  stats.demoted_blocks = host_->mover.num_demoted();
  stats.restored_blocks = host_->mover.num_restored();
  stats.host_dropped_blocks = host_->mover.num_dropped() + cache_.num_lost();
  if (host_->encoder != nullptr) {
    const StoreEncoder::Counts counts = host_->encoder->counts();
    stats.host_raw_bytes = counts.raw_bytes;
    stats.host_stored_bytes = counts.stored_bytes;
    stats.host_unfit_blocks = counts.unfit_blocks;
  }
  return stats;
}

absl::Status KvStore::CheckInvariants() const {
  RETURN_IF_ERROR(pool_.CheckInvariants());
  RETURN_IF_ERROR(cache_.CheckInvariants());
  if (host_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(host_pool_->CheckInvariants());
  RETURN_IF_ERROR(host_tier_.CheckInvariants());
  RETURN_IF_ERROR(host_->swap.CheckInvariants());
  RETURN_IF_ERROR(host_->mover.CheckInvariants());
  const int32_t leased =
      host_tier_.num_groups() + host_->swap.num_slabs() + host_->mover.num_slabs_in_flight();
  if (leased != host_pool_->num_slabs() - host_pool_->num_free()) {
    return Internal("{} slabs have a use, {} are leased", leased,
                    host_pool_->num_slabs() - host_pool_->num_free());
  }
  return absl::OkStatus();
}

}  // namespace tandem
