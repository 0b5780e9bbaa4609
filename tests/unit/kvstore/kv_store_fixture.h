#pragma once

#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "kvstore/kv_store.h"
#include "tests/support/test_device.h"
#include "tests/unit/kvstore/gated_device.h"

namespace tandem {

// Counts the wakes of a store's copier.
class WakeCounter {
 public:
  std::function<void()> wake() {
    return [this] {
      absl::MutexLock lock(&mutex_);
      ++count_;
    };
  }
  // Returns once there was a wake that no call before returned for.
  void Wait() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](WakeCounter* self) { return self->count_ > self->seen_; }, this));
    ++seen_;
  }

 private:
  absl::Mutex mutex_;
  int64_t count_ = 0;
  int64_t seen_ = 0;
};

// A small store whose tokens' KV is a function of the tokens before them and of themselves, as that
// of a model is: whoever reads KV of other tokens notices.
class KvStoreFixture : public ::testing::Test {
 protected:
  static constexpr int32_t kBlockTokens = 8;

  const KvLayout& Layout() const { return layout_; }

  void Open(KvStoreOptions options) {
    auto backend = OpenBackend(TestDevice(), {.num_threads = 1});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    device_ = std::make_unique<GatedDevice>(*backend_.device);
    auto stream = backend_.device->NewStream();
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
    options.layout = Layout();
    auto store = KvStore::Create(options, *device_, *stream_, wakes_.wake());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  static std::vector<int32_t> Tokens(int64_t count, int32_t first = 0) {
    std::vector<int32_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }

  absl::Status CopyBlocks(const BlockCopies& copies) {
    return backend_.ops->CopyBlocks(*stream_, {.pool = store_->view(), .pairs = copies.pairs});
  }

  // Computes the KV of tokens [begin, tokens.size()) into `table`.
  void Compute(BlockTable& table, const std::vector<int32_t>& tokens, int64_t begin = 0) {
    const auto end = static_cast<int64_t>(tokens.size());
    ASSERT_EQ(store_->Reserve(table, end), absl::OkStatus());
    BlockCopies copies;
    ASSERT_EQ(store_->MakeWritable(table, begin, end, copies), absl::OkStatus());
    ASSERT_EQ(CopyBlocks(copies), absl::OkStatus());
    for (int64_t position = begin; position < end; ++position) {
      for (int32_t layer = 0; layer < Layout().num_layers; ++layer) {
        const uint32_t value = Kv(tokens, position, layer);
        Copy(TokenKv(table, position, layer), std::as_bytes(std::span(&value, 1)));
      }
    }
  }

  void ExpectHolds(const BlockTable& table, const std::vector<int32_t>& tokens, int64_t count) {
    for (int64_t position = 0; position < count; ++position) {
      for (int32_t layer = 0; layer < Layout().num_layers; ++layer) {
        uint32_t value = 0;
        Copy(std::as_writable_bytes(std::span(&value, 1)), TokenKv(table, position, layer));
        ASSERT_EQ(value, Kv(tokens, position, layer)) << "token " << position;
      }
    }
  }

  void Fill(BlockTable& table) {
    const int64_t blocks = table.num_blocks() + store_->AvailableBlocks();
    ASSERT_EQ(store_->Reserve(table, blocks * kBlockTokens), absl::OkStatus());
  }

  // A sequence that is computed, cached and gone.
  void Cache(const std::vector<int32_t>& tokens, std::string_view salt = "") {
    PrefixKey key = store_->NewKey(salt);
    BlockTable table(kBlockTokens);
    const int64_t attached = store_->Attach(key, tokens, NumTokens(tokens), table);
    Compute(table, tokens, attached);
    store_->Insert(key, tokens, NumTokens(tokens), table);
  }

  PrefixMatch Match(const std::vector<int32_t>& tokens, std::string_view salt = "") {
    const PrefixKey key = store_->NewKey(salt);
    return store_->Match(key, tokens, NumTokens(tokens) - 1);
  }

  // Waits until a copy has ended.
  std::vector<KvCompletion> NextCompletions() {
    wakes_.Wait();
    return store_->Poll();
  }
  // ... until all have.
  std::vector<KvCompletion> AllCompletions() {
    std::vector<KvCompletion> all = store_->Poll();
    while (store_->stats().pinned_blocks > 0) {
      for (KvCompletion& completion : NextCompletions()) all.push_back(std::move(completion));
    }
    return all;
  }

  static int64_t NumTokens(const std::vector<int32_t>& tokens) {
    return static_cast<int64_t>(tokens.size());
  }

  void TearDown() override {
    if (store_ == nullptr) return;
    EXPECT_EQ(store_->CheckInvariants(), absl::OkStatus());
  }

  KvLayout layout_ = {
      .num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .block_tokens = kBlockTokens};
  Backend backend_;
  std::unique_ptr<GatedDevice> device_;
  std::unique_ptr<Stream> stream_;
  WakeCounter wakes_;
  std::unique_ptr<KvStore> store_;

 private:
  static uint32_t Kv(const std::vector<int32_t>& tokens, int64_t position, int32_t layer) {
    uint32_t value = 17 + layer;
    for (int64_t i = 0; i <= position; ++i) {
      value = value * 1'000'003 + static_cast<uint32_t>(tokens[i]) + 1;
    }
    return value;
  }

  void Copy(std::span<std::byte> dst, std::span<const std::byte> src) const {
    ASSERT_EQ(stream_->Copy(dst, src), absl::OkStatus());
    ASSERT_EQ(stream_->Synchronize(), absl::OkStatus());
  }

  std::span<std::byte> TokenKv(const BlockTable& table, int64_t position, int32_t layer) const {
    const int64_t slot = table.Slot(position);
    const auto extent = store_->Extent(layer, BlockId(slot / kBlockTokens));
    const int64_t offset = slot % kBlockTokens * Layout().head_dim * SizeOf(Layout().dtype);
    return extent.subspan(static_cast<size_t>(offset), sizeof(uint32_t));
  }
};

}  // namespace tandem
