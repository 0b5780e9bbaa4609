// Random operations on one KV store against a naive model: each sequence is the vector of its
// tokens. The KV of a token is a function of the tokens before it and of itself, as a model's is,
// so that a stale or foreign block is seen wherever it comes from: copy-on-write, the prefix cache,
// the host.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/hash.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "kvstore/kv_store.h"

namespace tandem::kvstore_property_test {
namespace {

constexpr int kSeeds = 34;
constexpr int kOperationsPerSeed = 30'000;  // over a million in all
constexpr size_t kMaxSequences = 8;
constexpr int64_t kMaxTokens = 400;
constexpr int64_t kMaxAppended = 40;
// Few, so that sequences meet again and again.
constexpr int32_t kVocabulary = 3;
constexpr int kNumStems = 6;
constexpr int kCheckEvery = 64;

KvLayout Layout() { return {.num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8}; }

// How often each thing happened in all seeds: a test in which something never does proves nothing.
struct Coverage {
  int64_t operations = 0;
  int64_t hits = 0;
  int64_t partial_hits = 0;
  int64_t copies = 0;
  int64_t evicted = 0;
  int64_t exhausted = 0;
  int64_t swapped_out = 0;
  int64_t swapped_in = 0;
  int64_t swaps_dropped = 0;
  int64_t demoted = 0;
  int64_t restored = 0;
  int64_t host_dropped = 0;
  int64_t pending = 0;
};

class Wakes {
 public:
  void Wake() {
    absl::MutexLock lock(&mutex_);
    ++count_;
  }
  // Waits until there were more than `seen`; returns how many.
  int64_t WaitBeyond(int64_t seen) {
    absl::MutexLock lock(&mutex_);
    const auto more = [&] { return count_ > seen; };
    mutex_.Await(absl::Condition(&more));
    return count_;
  }

 private:
  absl::Mutex mutex_;
  int64_t count_ = 0;
};

struct Sequence {
  std::string salt;
  std::optional<PrefixKey> key;
  BlockTable table{Layout().block_tokens};
  std::vector<int32_t> tokens;  // whose KV is in `table`
  std::vector<uint16_t> kv;     // of each token
};

// What was swapped out together.
struct Swapped {
  enum class State { kLeaving, kAway, kReturning };
  State state = State::kLeaving;
  std::vector<Sequence> sequences;  // without tables
};

class Trace {
 public:
  Trace(uint64_t seed, Backend& backend, Coverage& coverage)
      : random_(seed),
        coverage_(coverage),
        ops_(*backend.ops),
        stream_(*backend.device->NewStream()) {
    KvStoreOptions options = {
        .layout = Layout(),
        .num_blocks = static_cast<int32_t>(Pick(16, 240)),
        .model_fingerprint = seed,
        .eviction = Pick(0, 1) == 0 ? EvictionKind::kLru : EvictionKind::kCostAware,
        .host_bytes = 0};
    // A slab is three pages. One trace in five has no host tier.
    if (Pick(0, 4) > 0) options.host_bytes = Pick(1, 40) * 3 * 4096;
    store_ = *KvStore::Create(options, *backend.device, *stream_, [this] { wakes_.Wake(); });
    for (auto& stem : stems_) stem = RandomTokens(Pick(20, 300));
  }

  void Run() {
    for (int i = 0; i < kOperationsPerSeed && !::testing::Test::HasFailure(); ++i) {
      Operate();
      ++coverage_.operations;
      if (i % kCheckEvery == 0) CheckAll();
    }
    CheckAll();
    End();
  }

 private:
  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  std::vector<int32_t> RandomTokens(int64_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(Pick(0, kVocabulary - 1));
    return tokens;
  }

  Sequence& PickSequence() { return sequences_[Pick(0, std::ssize(sequences_) - 1)]; }

  void Remove(Sequence& sequence) {
    std::swap(sequence, sequences_.back());
    sequences_.pop_back();
  }

  void Operate() {
    const int64_t what = Pick(0, 99);
    if (what < 12 || sequences_.empty()) return New();
    if (what < 40) return Append();
    if (what < 48) return Fork();
    if (what < 54) return Overwrite();
    if (what < 58) return Truncate();
    if (what < 68) return Remove(PickSequence());
    if (what < 78) return Insert(PickSequence());
    if (what < 82) return SwapOut();
    if (what < 87) return SwapInOrDrop();
    if (what < 90) return ExpectOrUnexpect();
    if (what < 99) return Settle();
    if (Pick(0, 9) == 0) store_->ClearCache();
  }

  // A prompt that shares a random prefix with one of the stems, attached as far as it is cached.
  void New() {
    if (sequences_.size() >= kMaxSequences) return;
    Sequence sequence;
    sequence.salt = Pick(0, 3) == 0 ? "tenant" : "";
    sequence.key = store_->NewKey(sequence.salt);
    const std::vector<int32_t>& stem = stems_[Pick(0, kNumStems - 1)];
    const int64_t shared = Pick(0, 1) == 0 ? std::ssize(stem) : Pick(1, std::ssize(stem));
    std::vector<int32_t> prompt(stem.begin(), stem.begin() + shared);
    for (const int32_t token : RandomTokens(Pick(0, 12))) prompt.push_back(token);
    const int64_t limit = Pick(0, std::ssize(prompt));
    const PrefixMatch match = store_->Match(*sequence.key, prompt, limit);
    if (match.host_blocks > 0) Restore(sequence, prompt, match);
    coverage_.pending += match.pending ? 1 : 0;
    const int32_t available = store_->AvailableBlocks();
    const PrefixMatch now = store_->Match(*sequence.key, prompt, limit);
    const int64_t attached = store_->Attach(*sequence.key, prompt, limit, sequence.table);
    EXPECT_EQ(attached, now.device_tokens);
    EXPECT_LE(attached, limit);
    EXPECT_EQ(sequence.table.num_blocks(), now.device_blocks);
    EXPECT_LE(store_->AvailableBlocks(), available - now.idle_blocks);
    coverage_.hits += attached > 0 ? 1 : 0;
    coverage_.partial_hits += attached % Layout().block_tokens != 0 ? 1 : 0;
    for (int64_t i = 0; i < attached; ++i) Note(sequence, prompt[i]);
    CheckContents(sequence);
    sequences_.push_back(std::move(sequence));
    if (Pick(0, 3) > 0) return Extend(sequences_.back(), {prompt.begin() + attached, prompt.end()});
    Shorten(sequences_.back(), attached);
  }

  void Restore(Sequence& sequence, const std::vector<int32_t>& prompt, const PrefixMatch& match) {
    const absl::Status status = store_->Restore(*sequence.key, prompt);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      return;
    }
    EXPECT_TRUE(store_->Match(*sequence.key, prompt, std::ssize(prompt)).pending);
    if (Pick(0, 1) == 0) return;  // whoever comes later finds it
    Settle();
    const PrefixMatch now = store_->Match(*sequence.key, prompt, std::ssize(prompt));
    EXPECT_GE(now.device_tokens, match.host_tokens) << "what was restored is there";
  }

  // One to three sequences, as a step does it: room for all, then the copies of all, then the rest.
  void Append() {
    BlockCopies copies;
    std::map<Sequence*, std::vector<int32_t>> added;
    for (int64_t i = Pick(1, 3); i > 0; --i) {
      Sequence& sequence = PickSequence();
      const int64_t room = kMaxTokens - std::ssize(sequence.tokens);
      if (room == 0 || added.contains(&sequence)) continue;
      const auto tokens = RandomTokens(Pick(1, std::min(room, kMaxAppended)));
      if (MakeRoom(sequence, std::ssize(tokens), copies)) added.emplace(&sequence, tokens);
    }
    Copy(copies);
    for (const auto& [sequence, tokens] : added) Fill(*sequence, tokens);
  }

  void Extend(Sequence& sequence, const std::vector<int32_t>& tokens) {
    BlockCopies copies;
    if (!MakeRoom(sequence, std::ssize(tokens), copies)) return;
    Copy(copies);
    Fill(sequence, tokens);
  }

  bool MakeRoom(Sequence& sequence, int64_t num_tokens, BlockCopies& copies) {
    const auto begin = static_cast<int64_t>(sequence.tokens.size());
    const int64_t end = begin + num_tokens;
    const int32_t needed = store_->BlocksToWrite(sequence.table, begin, end);
    const int32_t available = store_->AvailableBlocks();
    absl::Status status = store_->Reserve(sequence.table, end);
    if (status.ok()) status = store_->MakeWritable(sequence.table, begin, end, copies);
    if (status.ok()) {
      // More when a block left the cache with what was evicted before it, and need not be copied.
      EXPECT_GE(store_->AvailableBlocks(), available - needed);
      return true;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_GT(needed, available);
    ++coverage_.exhausted;
    Copy(copies);  // of what is let go of here, perhaps
    Shorten(sequence, begin);
    return false;
  }

  void Copy(BlockCopies& copies) {
    EXPECT_EQ(ops_.CopyBlocks(*stream_, {.pool = store_->view(), .pairs = copies.pairs}),
              absl::OkStatus());
    copies.Clear();
  }

  void Fill(Sequence& sequence, const std::vector<int32_t>& tokens) {
    for (const int32_t token : tokens) {
      Note(sequence, token);
      Write(sequence, std::ssize(sequence.tokens) - 1);
    }
    if (Pick(0, 1) == 0) Insert(sequence);
  }

  void Fork() {
    if (sequences_.size() >= kMaxSequences) return;
    const Sequence& parent = PickSequence();
    Sequence child = {.salt = parent.salt,
                      .key = parent.key,
                      .table = parent.table.Fork(),
                      .tokens = parent.tokens,
                      .kv = parent.kv};
    sequences_.push_back(std::move(child));
  }

  // The last tokens become others: what a rejected draft or a beam does.
  void Overwrite() {
    Sequence& sequence = PickSequence();
    const auto size = static_cast<int64_t>(sequence.tokens.size());
    const int64_t begin = std::max<int64_t>(0, size - Pick(0, 20));
    Shorten(sequence, begin);
    Extend(sequence, RandomTokens(size - begin));
  }

  void Truncate() {
    Sequence& sequence = PickSequence();
    Shorten(sequence, Pick(0, std::ssize(sequence.tokens)));
  }

  // A key knows only tokens that stay: the sequence gets a new one.
  void Shorten(Sequence& sequence, int64_t kept) {
    sequence.table.Truncate(kept);
    sequence.tokens.resize(kept);
    sequence.kv.resize(kept);
    sequence.key = store_->NewKey(sequence.salt);
  }

  void Insert(Sequence& sequence) {
    const auto size = static_cast<int64_t>(sequence.tokens.size());
    store_->Insert(*sequence.key, sequence.tokens, size, sequence.table);
    if (Pick(0, 1) == 0) return;
    // Blocks of others that equal its own may have left the cache since: a key that does not know
    // how far it came brings all in again.
    sequence.key = store_->NewKey(sequence.salt);
    store_->Insert(*sequence.key, sequence.tokens, size, sequence.table);
    const PrefixMatch match = store_->Match(*sequence.key, sequence.tokens, size);
    EXPECT_GE(match.device_tokens, size / Layout().block_tokens * Layout().block_tokens);
  }

  void SwapOut() {
    Swapped swapped;
    std::vector<BlockTable> tables;
    for (int64_t i = Pick(1, 3); i > 0 && !sequences_.empty(); --i) {
      std::swap(PickSequence(), sequences_.back());
      tables.push_back(std::move(sequences_.back().table));
      swapped.sequences.push_back(std::move(sequences_.back()));
      sequences_.pop_back();
    }
    const std::optional<int32_t> moved = store_->BlocksToSwapOut(tables);
    const int32_t given_back = store_->BlocksGivenBack(tables);
    const int32_t available = store_->AvailableBlocks();
    const absl::StatusOr<SwapId> id = store_->SwapOut(tables);
    EXPECT_EQ(id.ok(), moved.has_value()) << id.status();
    if (id.ok()) {
      EXPECT_LE(store_->AvailableBlocks(), available);
      EXPECT_LE(given_back, *moved);
      swapped_.emplace(*id, std::move(swapped));
      return;
    }
    EXPECT_EQ(id.status().code(), absl::StatusCode::kResourceExhausted);
    ASSERT_EQ(tables.size(), swapped.sequences.size());
    for (size_t i = 0; i < tables.size(); ++i) {
      swapped.sequences[i].table = std::move(tables[i]);
      sequences_.push_back(std::move(swapped.sequences[i]));
    }
  }

  void SwapInOrDrop() {
    if (swapped_.empty()) return;
    auto place = swapped_.begin();
    std::advance(place, Pick(0, std::ssize(swapped_) - 1));
    auto& [id, swapped] = *place;
    if (Pick(0, 4) == 0) {
      store_->DropSwapped(id);
      swapped_.erase(place);
      ++coverage_.swaps_dropped;
      return;
    }
    if (swapped.state != Swapped::State::kAway) return;
    const bool fits = store_->BlocksToSwapIn(id) <= store_->AvailableBlocks();
    const absl::Status status = store_->SwapIn(id);
    EXPECT_EQ(status.ok(), fits) << status;
    if (status.ok()) swapped.state = Swapped::State::kReturning;
  }

  void ExpectOrUnexpect() {
    const SequenceId owner(static_cast<uint64_t>(Pick(0, 3)));
    if (Pick(0, 1) == 0) return store_->Unexpect(owner);
    const std::vector<int32_t>& stem = stems_[Pick(0, kNumStems - 1)];
    PrefixKey key = store_->NewKey("");
    store_->Expect(owner, key, stem);
    const PrefixMatch match = store_->Match(key, stem, std::ssize(stem));
    const bool has_next =
        std::ssize(stem) / Layout().block_tokens > match.device_tokens / Layout().block_tokens;
    EXPECT_TRUE(match.pending || match.host_blocks > 0 || !has_next);
  }

  // Waits for the copies under way, so that a seed tells what happens; what came before this ran
  // while they were.
  void Settle() {
    do {
      for (const KvCompletion& completion : store_->Poll()) Finish(completion);
      const bool under_way =
          store_->stats().pinned_blocks > 0 || std::ranges::any_of(swapped_, [](const auto& entry) {
            return entry.second.state != Swapped::State::kAway;
          });
      if (!under_way) return;
      wakes_seen_ = wakes_.WaitBeyond(wakes_seen_);
    } while (true);
  }

  void Finish(const KvCompletion& completion) {
    EXPECT_EQ(completion.status, absl::OkStatus());
    if (completion.kind == KvCompletion::Kind::kSwapOut) {
      swapped_.at(completion.swap).state = Swapped::State::kAway;
    }
    if (completion.kind != KvCompletion::Kind::kSwapIn) return;
    Swapped swapped = std::move(swapped_.at(completion.swap));
    swapped_.erase(completion.swap);
    std::vector<BlockTable> tables = store_->TakeSwapped(completion.swap);
    ASSERT_EQ(tables.size(), swapped.sequences.size());
    for (size_t i = 0; i < tables.size(); ++i) {
      swapped.sequences[i].table = std::move(tables[i]);
      CheckContents(swapped.sequences[i]);
      sequences_.push_back(std::move(swapped.sequences[i]));
    }
  }

  static void Note(Sequence& sequence, int32_t token) {
    const uint32_t before = sequence.kv.empty() ? 0x9d39 : sequence.kv.back();
    const std::array<uint32_t, 2> both = {before, static_cast<uint32_t>(token)};
    sequence.tokens.push_back(token);
    sequence.kv.push_back(static_cast<uint16_t>(Hash64(std::as_bytes(std::span(both)))));
  }

  void Write(Sequence& sequence, int64_t position) {
    const int64_t slot = sequence.table.Slot(position);
    for (int32_t layer = 0; layer < Layout().num_layers; ++layer) {
      const auto extent = store_->Extent(layer, BlockId(slot / Layout().block_tokens));
      FillToken(extent, slot % Layout().block_tokens, sequence.kv[position] + layer);
    }
  }

  // K then V, [token][head_dim] each: a value for K, its complement for V.
  static void FillToken(std::span<std::byte> extent, int64_t offset, uint16_t value) {
    const int64_t row_bytes = Layout().head_dim * SizeOf(Layout().dtype);
    std::byte* k = extent.data() + offset * row_bytes;
    std::byte* v = k + extent.size() / 2;
    const auto complement = static_cast<uint16_t>(~value);
    for (int64_t at = 0; at < row_bytes; at += 2) {
      std::memcpy(k + at, &value, 2);
      std::memcpy(v + at, &complement, 2);
    }
  }

  void CheckAll() {
    ASSERT_EQ(store_->CheckInvariants(), absl::OkStatus());
    std::map<int32_t, int32_t> holders;
    for (const Sequence& sequence : sequences_) {
      for (const int32_t block : sequence.table.block_ids()) ++holders[block];
      CheckContents(sequence);
    }
    int32_t more = 0;  // held by swapped sequences, for the others
    for (int32_t block = 0; block < store_->pool().num_blocks(); ++block) {
      const int32_t tables = store_->pool().pins(BlockId(block)).tables;
      const auto found = holders.find(block);
      const int32_t known = found == holders.end() ? 0 : found->second;
      EXPECT_GE(tables, known) << "block " << block;
      more += tables - known;
    }
    if (swapped_.empty() && store_->stats().pinned_blocks == 0) {
      EXPECT_EQ(more, 0);
    }
  }

  // Whole blocks are compared by hash with what the model says; a partly filled one is compared
  // after its unused tokens were made equal, since a block keeps what its last owner left.
  void CheckContents(const Sequence& sequence) {
    for (int32_t i = 0; i < sequence.table.num_blocks(); ++i) CheckBlock(sequence, i);
  }

  void CheckBlock(const Sequence& sequence, int32_t index) {
    const int64_t first = int64_t{index} * Layout().block_tokens;
    const auto size = static_cast<int64_t>(sequence.tokens.size());
    for (int32_t layer = 0; layer < Layout().num_layers; ++layer) {
      const auto extent = store_->Extent(layer, BlockId(sequence.table.block_ids()[index]));
      std::array<std::byte, 256> expected;
      ASSERT_EQ(extent.size(), expected.size());
      std::ranges::copy(extent, expected.begin());
      for (int64_t offset = 0; offset < Layout().block_tokens && first + offset < size; ++offset) {
        FillToken(expected, offset, sequence.kv[first + offset] + layer);
      }
      ASSERT_EQ(Hash64(extent), Hash64(expected)) << "block " << index << " layer " << layer;
    }
  }

  // Everything is let go of: nothing may be left.
  void End() {
    Settle();
    for (const auto& [id, swapped] : swapped_) store_->DropSwapped(id);
    swapped_.clear();
    sequences_.clear();
    Settle();
    store_->ClearCache();
    Settle();
    const KvStats stats = store_->stats();
    EXPECT_EQ(stats.free_blocks, stats.total_blocks);
    EXPECT_EQ(stats.host_used_bytes, 0);
    EXPECT_EQ(stats.swapped_blocks, 0);
    EXPECT_EQ(store_->CheckInvariants(), absl::OkStatus());
    coverage_.copies += stats.copied_blocks;
    coverage_.evicted += stats.evicted_blocks;
    coverage_.swapped_out += stats.swapped_out_blocks;
    coverage_.swapped_in += stats.swapped_in_blocks;
    coverage_.demoted += stats.demoted_blocks;
    coverage_.restored += stats.restored_blocks;
    coverage_.host_dropped += stats.host_dropped_blocks;
  }

  std::mt19937_64 random_;
  Coverage& coverage_;
  Ops& ops_;
  std::unique_ptr<Stream> stream_;
  Wakes wakes_;
  int64_t wakes_seen_ = 0;
  std::unique_ptr<KvStore> store_;  // before the tables: they must go first
  std::array<std::vector<int32_t>, kNumStems> stems_;
  std::vector<Sequence> sequences_;
  std::map<SwapId, Swapped> swapped_;
};

void ExpectAll(const Coverage& coverage) {
  EXPECT_GE(coverage.operations, 1'000'000);
  EXPECT_GT(coverage.hits, 10'000);
  EXPECT_GT(coverage.partial_hits, 1'000);
  EXPECT_GT(coverage.copies, 10'000);
  EXPECT_GT(coverage.evicted, 10'000);
  EXPECT_GT(coverage.exhausted, 1'000);
  EXPECT_GT(coverage.swapped_out, 10'000);
  EXPECT_GT(coverage.swapped_in, 10'000);
  EXPECT_GT(coverage.swaps_dropped, 1'000);
  EXPECT_GT(coverage.demoted, 10'000);
  EXPECT_GT(coverage.restored, 1'000);
  EXPECT_GT(coverage.host_dropped, 1'000);
  EXPECT_GT(coverage.pending, 100);
}

TEST(KvStoreProperty, TablesHoldWhatTheModelHolds) {
  auto backend = OpenBackend("cpu", {.num_threads = 1});
  ASSERT_TRUE(backend.ok()) << backend.status();
  Coverage coverage;
  for (uint64_t seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Trace(seed, *backend, coverage).Run();
  }
  if (!HasFailure()) ExpectAll(coverage);
}

}  // namespace
}  // namespace tandem::kvstore_property_test
