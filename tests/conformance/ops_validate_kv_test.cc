#include <cstdint>
#include <vector>

#include "tests/conformance/validate_fixture.h"

// Every argument that an op on the block pool must refuse is refused by its name.

namespace tandem::ops_validate_kv_test {
namespace {

using ops_validate::kNaN;
using ops_validate::ValidateTest;

TEST_P(ValidateTest, StoreKv) {
  const std::vector<int64_t> slots = {31, -1};
  const StoreKvArgs good = {F32({2, 2, 16}), Out({2, 2, 16}), slots, Pool(), 1};
  EXPECT_TRUE(ops().StoreKv(stream(), good).ok());
  const auto refused = [&](auto change) {
    StoreKvArgs args = good;
    change(args);
    return ops().StoreKv(stream(), args);
  };
  const std::vector<int64_t> past = {31, 32};
  ExpectRefused(refused([&](auto& a) { a.slots = past; }), {"slots[1] is 32", "[0, 32)"});
  ExpectRefused(refused([&](auto& a) { a.layer = 2; }), {"layer is 2", "[0, 2)"});
  ExpectRefused(refused([&](auto& a) { a.v = Out({2, 1, 16}); }), {"v is f32[2, 1, 16]"});
  ExpectRefused(refused([&](auto& a) { a.pool.data = nullptr; }), {"pool has no data"});
  ExpectRefused(refused([&](auto& a) { a.pool.block_tokens = 12; }), {"block_tokens 12"});
  ExpectRefused(refused([&](auto& a) { a.pool.head_dim = 20; }), {"head_dim 20"});
  ExpectRefused(refused([&](auto& a) { a.pool.dtype = DType::kI32; }), {"pool is of i32"});
  ExpectRefused(refused([&](auto& a) { a.pool.num_blocks = 0; }), {"0 blocks"});
  ExpectRefused(refused([&](auto& a) { a.v.dtype = DType::kI32; }), {"v is i32"});
  ExpectRefused(refused([&](auto& a) { a.pool.k_scale = 2; }), {"k_scale of 2", "must be 1"});
  ExpectRefused(refused([&](auto& a) { a.pool = With(Pool(), DType::kF8E4M3, 0, 1); }),
                {"k_scale of 0", "finite and positive"});
  ExpectRefused(refused([&](auto& a) { a.pool = With(Pool(), DType::kF8E4M3, 1, kNaN); }),
                {"v_scale of nan", "finite and positive"});
  ExpectRefused(refused([&](auto& a) { a.pool = With(Pool(), DType::kK6V5, 1, 1); }),
                {"pool of k6v5 has head_dim 16", "multiple of 64"});
  ExpectRefused(refused([&](auto& a) { a.pool = With(Pool(), DType::kK6V5, 2, 1); }),
                {"k_scale of 2", "must be 1"});
}

// On a GPU nothing computes over quantised KV: no op may take it for numbers.
TEST_P(ValidateTest, QuantisedPoolsWhereTheyAreNotServed) {
  if (GetParam().on_cpu()) GTEST_SKIP() << "the CPU serves them";
  KvPoolView pool = With(Pool(), DType::kK4V3, 1, 1);
  pool.num_kv_heads = 1;
  pool.num_layers = 1;
  pool.head_dim = 64;
  const std::vector<int64_t> slots = {0};
  const TensorView row = F32({1, 1, 64});
  const std::initializer_list<const char*> words = {"k4v3", "bf16"};
  ExpectRefused(ops().StoreKv(stream(), {row, Out({1, 1, 64}), slots, pool, 0}), words);
  const std::vector<int32_t> starts = {0, 1}, contexts = {1}, ids = {0};
  AttentionArgs args = {.q = row,
                        .pool = pool,
                        .query_starts = starts,
                        .context_lens = contexts,
                        .block_tables = {ids, starts},
                        .out = Out({1, 1, 64}),
                        .scale = 1};
  ExpectRefused(ops().AttentionPrefill(stream(), args), words);
  ExpectRefused(ops().AttentionDecode(stream(), args), words);
}

TEST_P(ValidateTest, RopeStoreKvTakesOneK) {
  const std::vector<int32_t> positions = {1, 0};
  const std::vector<int64_t> slots = {3, -1};
  const RopeArgs rope = {.q = F32({2, 4, 16}),
                         .k = Out({2, 2, 16}),
                         .positions = positions,
                         .cos = Table({2, 8}),
                         .sin = Table({2, 8})};
  const DeviceArray memory = NewOutput(4096);
  KvPoolView pool = Pool();
  pool.data = static_cast<std::byte*>(memory.data());
  const StoreKvArgs store = {.k = rope.k, .v = Out({2, 2, 16}), .slots = slots, .pool = pool};
  EXPECT_TRUE(ops().RopeStoreKv(stream(), rope, store).ok());
  StoreKvArgs other = store;
  other.k = F32({2, 2, 16});
  ExpectRefused(ops().RopeStoreKv(stream(), rope, other), {"k that is stored"});
  other = store;
  other.layer = 2;
  ExpectRefused(ops().RopeStoreKv(stream(), rope, other), {"store_kv", "layer is 2"});
  RopeArgs turned = rope;
  turned.cos = Table({2, 7});
  ExpectRefused(ops().RopeStoreKv(stream(), turned, store), {"rope", "cos is"});
}

TEST_P(ValidateTest, Blocks) {
  const auto copy = [&](std::vector<BlockPair> pairs) {
    return ops().CopyBlocks(stream(), {Pool(), pairs});
  };
  ExpectRefused(copy({{0, 4}}), {"pairs[0].to is 4"});
  ExpectRefused(copy({{0, 1}, {-1, 2}}), {"pairs[1].from is -1"});
  ExpectRefused(copy({{0, 1}, {1, 2}}), {"read and write block 1"});
  ExpectRefused(copy({{0, 1}, {2, 1}}), {"write block 1 twice"});
  const LayerBlock items[] = {{0, 0}, {2, 0}};
  std::vector<std::byte> staging(static_cast<size_t>(2 * Pool().ExtentBytes()));
  ExpectRefused(ops().GatherBlocks(stream(), {Pool(), items, staging}), {"items[1] is layer 2"});
  const std::span<const LayerBlock> one(items, 1);
  ExpectRefused(ops().ScatterBlocks(stream(), {Pool(), one, staging}), {"staging has"});
  const std::span<std::byte> inside(Pool().data + 8, static_cast<size_t>(Pool().ExtentBytes()));
  ExpectRefused(ops().GatherBlocks(stream(), {Pool(), one, inside}), {"staging overlaps the pool"});
}

TEST_P(ValidateTest, CopyTokens) {
  const auto copy = [&](std::vector<int32_t> from, std::vector<int32_t> to) {
    return ops().CopyTokens(stream(), {Pool(), from, to});
  };
  // Two tokens for each of two KV heads in each of two layers.
  EXPECT_EQ(copy({0, 1, 31, 0, 4, 5, 6, 7}, {2, 30}), absl::OkStatus());
  EXPECT_EQ(copy({}, {}), absl::OkStatus());
  ExpectRefused(copy({0, 1, 2, 3}, {2, 30}),
                {"copy_tokens", "from has 4 slots", "the 2", "4 times"});
  ExpectRefused(copy({0, 1, 2, 3, 4, 5, 6, 7, 8}, {9, 10}), {"from has 9 slots"});
  const std::vector<int32_t> from = {0, 1, 2, 3, 10, 11, 12, 13};
  const auto with = [&from](size_t place, int32_t slot) {
    std::vector<int32_t> changed = from;
    changed[place] = slot;
    return changed;
  };
  ExpectRefused(copy(from, {5, 32}), {"to[1] is 32", "[0, 32)"});
  ExpectRefused(copy(from, {-1, 6}), {"to[0] is -1"});
  ExpectRefused(copy(with(2, 32), {5, 6}), {"from[2] is 32", "[0, 32)"});
  ExpectRefused(copy(with(1, -1), {5, 6}), {"from[1] is -1"});
  ExpectRefused(copy(from, {6, 6}), {"to names slot 6 twice"});
  ExpectRefused(copy(with(5, 6), {5, 6}), {"from[1] of KV head 0 in layer 1 is slot 6"});
  ExpectRefused(copy(with(2, 6), {5, 6}), {"from[0] of KV head 1 in layer 0 is slot 6"});
  KvPoolView large = Pool();
  large.num_blocks = 1 << 28;  // of 8 tokens: one slot more than an int32 can name
  const std::vector<int32_t> four = {0, 1, 0, 1}, to = {2};
  ExpectRefused(ops().CopyTokens(stream(), {large, four, to}), {"268435456 blocks", "2147483647"});
}

TEST_P(ValidateTest, ConvertKv) {
  const auto source = [this](size_t bytes) {
    return std::span<const std::byte>(static_cast<const std::byte*>(arrays_[0].data()), bytes);
  };
  const size_t extent = 2 * 2 * 16 * 16;  // f8e4m3, blocks of 16
  const auto refused = [&](auto change) {
    KvRun run = {.src = source(extent), .src_token = 8, .dst = {1, 3}, .num_tokens = 8};
    ConvertKvArgs args = {
        .pool = Pool(), .src_dtype = DType::kF8E4M3, .src_block_tokens = 16, .runs = {}};
    change(args, run);
    args.runs = {&run, 1};
    return ops().ConvertKv(stream(), args);
  };
  EXPECT_EQ(refused([](auto&, auto&) {}), absl::OkStatus());
  ExpectRefused(refused([](auto& a, auto&) { a.src_dtype = DType::kF16; }),
                {"src_dtype is f16", "bf16"});
  ExpectRefused(refused([](auto& a, auto&) { a.src_block_tokens = 24; }),
                {"the layout of the sources", "block_tokens 24"});
  ExpectRefused(refused([](auto& a, auto&) { a.pool = With(a.pool, DType::kF8E4M3, 2, 1); }),
                {"scales 2 and 1"});
  ExpectRefused(refused([&](auto&, auto& run) { run.src = source(extent - 1); }),
                {"runs[0]", "src has 1023 bytes", "1024"});
  ExpectRefused(refused([&](auto&, auto& run) { run.src = source(extent + 8).subspan(8); }),
                {"multiple of 16"});
  ExpectRefused(refused([](auto&, auto& run) { run.src_token = 9; }), {"src_token is 9", "of 16"});
  ExpectRefused(refused([](auto&, auto& run) { run.dst_token = 1; }), {"dst_token is 1", "of 8"});
  ExpectRefused(refused([](auto&, auto& run) { run.num_tokens = 0; }), {"num_tokens 0"});
  ExpectRefused(refused([](auto&, auto& run) { run.dst.layer = 2; }), {"dst.layer is 2"});
  ExpectRefused(refused([](auto&, auto& run) { run.dst.block = 4; }), {"dst.block is 4"});
  ExpectRefused(refused([&](auto& a, auto& run) {
                  run.src = {a.pool.data + 16, extent};
                }),
                {"src overlaps the pool"});
}

}  // namespace
}  // namespace tandem::ops_validate_kv_test
