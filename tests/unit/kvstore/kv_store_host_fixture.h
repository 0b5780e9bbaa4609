#pragma once

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/kv_store_fixture.h"

namespace tandem::kv_store_host {

inline constexpr int64_t kSlabBytes = 3 * 4096;  // a header and two layers
inline constexpr int64_t kGroupTokens = 128;

// A store with memory of the host, to which its prefixes can be sent and from which they come back.
class KvStoreHostTest : public KvStoreFixture {
 protected:
  void SetUp() override { OpenWithSlabs(4); }

  void OpenWithSlabs(int64_t slabs) {
    store_.reset();
    Open({.num_blocks = 40, .host_bytes = slabs * kSlabBytes});
  }

  // Caches `tokens`, takes them once from the cache, and lets the device have other things.
  void SendToHost(const std::vector<int32_t>& tokens) {
    Cache(tokens);
    Cache(tokens);
    AllCompletions();
    BlockTable all(kBlockTokens);
    Fill(all);
    ASSERT_EQ(store_->stats().cached_blocks, 0);
  }

  absl::Status Restore(const std::vector<int32_t>& tokens) {
    PrefixKey key = store_->NewKey("");
    return store_->Restore(key, tokens);
  }

  void ExpectAttaches(const std::vector<int32_t>& tokens, int64_t count) {
    PrefixKey key = store_->NewKey("");
    BlockTable table(kBlockTokens);
    EXPECT_EQ(store_->Attach(key, tokens, NumTokens(tokens), table), count);
    ExpectHolds(table, tokens, count);
  }
};

}  // namespace tandem::kv_store_host
