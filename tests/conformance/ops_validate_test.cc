#include <algorithm>
#include <limits>
#include <string>

#include "tests/support/ops_fixture.h"

// Every argument that an op must refuse is refused by its name, and nothing is computed.

namespace tandem::ops_validate_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class ValidateTest : public OpsTest {
 protected:
  // `refused` must give INVALID_ARGUMENT with every one of `words` in its message.
  static void ExpectRefused(const absl::Status& refused, std::initializer_list<const char*> words) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    for (const char* word : words) {
      EXPECT_NE(refused.ToString().find(word), std::string::npos) << word << " in: " << refused;
    }
  }

  void SetUp() override {
    OpsTest::SetUp();
    const std::vector<float> zeros(4096);
    for (size_t i = 0; i < 4; ++i) arrays_.push_back(ToDevice(zeros));
  }

  TensorView F32(std::initializer_list<int64_t> shape) { return Tensor(arrays_[0], shape); }
  // Apart from what F32 gives.
  TensorView Out(std::initializer_list<int64_t> shape) { return Tensor(arrays_[1], shape); }
  TensorView Table(std::initializer_list<int64_t> shape) { return Tensor(arrays_[2], shape); }
  std::byte* pool_data() { return static_cast<std::byte*>(arrays_[2].data()); }
  KvPoolView Pool() { return {pool_data(), DType::kBF16, 2, 4, 2, 8, 16}; }

  static KvPoolView With(KvPoolView pool, DType dtype, float k_scale, float v_scale) {
    pool.dtype = dtype;
    pool.k_scale = k_scale;
    pool.v_scale = v_scale;
    return pool;
  }

  std::vector<DeviceArray> arrays_;
};

TEST_P(ValidateTest, RmsNorm) {
  const RmsNormArgs good = {F32({2, 8}), Out({8}), Out({2, 8}), 1e-5f};
  EXPECT_TRUE(ops().RmsNorm(stream(), good).ok());
  const auto refused = [&](auto change) {
    RmsNormArgs args = good;
    change(args);
    return ops().RmsNorm(stream(), args);
  };
  ExpectRefused(refused([&](auto& a) { a.x.dtype = DType::kF16; }),
                {"x is f16[2, 8]", "f32[*, *]"});
  ExpectRefused(refused([&](auto& a) { a.x.data = nullptr; }), {"x has no data"});
  ExpectRefused(refused([&](auto& a) { a.weight = Out({9}); }), {"weight is f32[9]", "f32[8]"});
  ExpectRefused(refused([&](auto& a) { a.out = Out({3, 8}); }), {"out is f32[3, 8]"});
  ExpectRefused(refused([&](auto& a) { a.x.row_stride = 7; }), {"x has a row stride of 7"});
  ExpectRefused(refused([&](auto& a) {
                  a.out = F32({2, 8}).WithRowStride(9);
                }),
                {"out overlaps x"});
  ExpectRefused(refused([&](auto& a) { a.eps = kNaN; }), {"eps is nan"});
  ExpectRefused(refused([&](auto& a) { a.eps = -1; }), {"eps is -1"});
}

TEST_P(ValidateTest, Rope) {
  const std::vector<int32_t> positions = {4, 0};
  const RopeArgs good = {.q = F32({2, 2, 8}),
                         .k = Out({2, 1, 8}),
                         .positions = positions,
                         .cos = Table({5, 4}),
                         .sin = Table({5, 4})};
  EXPECT_TRUE(ops().Rope(stream(), good).ok());
  const auto refused = [&](auto change) {
    RopeArgs args = good;
    change(args);
    return ops().Rope(stream(), args);
  };
  ExpectRefused(refused([&](auto& a) { a.q = F32({2, 2, 7}); }), {"q has head_dim 7", "even"});
  ExpectRefused(refused([&](auto& a) { a.k = Out({3, 1, 8}); }), {"k is f32[3, 1, 8]"});
  ExpectRefused(refused([&](auto& a) { a.k.dtype = DType::kF16; }), {"k is f16[2, 1, 8]", "f32"});
  ExpectRefused(refused([&](auto& a) { a.cos = Out({5, 8}); }), {"cos is f32[5, 8]"});
  ExpectRefused(refused([&](auto& a) { a.sin = Out({4, 4}); }), {"sin is f32[4, 4]", "f32[5, 4]"});
  ExpectRefused(refused([&](auto& a) { a.k_norm = Out({4}); }), {"k_norm is f32[4]", "f32[8]"});
  ExpectRefused(refused([&](auto& a) { a.k = F32({2, 1, 8}); }), {"k overlaps q"});
  ExpectRefused(refused([&](auto& a) { a.norm_eps = kNaN; }), {"norm_eps is nan"});
  const std::vector<int32_t> past = {4, 5}, below = {-1, 0}, three = {0, 1, 2};
  ExpectRefused(refused([&](auto& a) { a.positions = past; }), {"positions[1] is 5", "[0, 5)"});
  ExpectRefused(refused([&](auto& a) { a.positions = below; }), {"positions[0] is -1"});
  ExpectRefused(refused([&](auto& a) { a.positions = three; }), {"positions has 3 entries", "2"});
}

TEST_P(ValidateTest, SlicesOfOneFusedTensorAreApart) {
  const std::vector<int32_t> positions = {1, 0};
  const TensorView fused = F32({2, 3, 8});
  const RopeArgs args = {
      .q = TensorView(fused.data, DType::kF32, {2, 2, 8}).WithRowStride(24),
      .k = TensorView(fused.Row<float>(0) + 16, DType::kF32, {2, 1, 8}).WithRowStride(24),
      .positions = positions,
      .cos = Table({2, 4}),
      .sin = Table({2, 4})};
  EXPECT_TRUE(ops().Rope(stream(), args).ok());
}

// Types that a backend does not compute in, and such that no tensor of activations has.
TEST_P(ValidateTest, ActivationTypes) {
  const std::vector<DType> types = ActivationTypes();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    if (std::find(types.begin(), types.end(), dtype) != types.end()) continue;
    TensorView gate_up = F32({2, 16}), out = Out({2, 8});
    gate_up.dtype = out.dtype = dtype;
    ExpectRefused(ops().SiluMul(stream(), {gate_up, out}), {"out is", "does not compute in"});
  }
  TensorView out = Out({2, 8});
  out.dtype = DType::kI32;
  ExpectRefused(ops().SiluMul(stream(), {F32({2, 16}), out}), {"out is i32"});
  out.dtype = DType::kF8E4M3;
  ExpectRefused(ops().SiluMul(stream(), {F32({2, 16}), out}), {"out is f8e4m3"});
}

TEST_P(ValidateTest, GemmEmbeddingAndPacking) {
  const PackedMatrix packed = {pool_data(), DType::kBF16, 4, 8};
  ExpectRefused(ops().Gemm(stream(), {.x = F32({2, 7}), .weight = packed, .out = Out({2, 4})}),
                {"x is f32[2, 7]", "f32[*, 8]"});
  ExpectRefused(ops().Gemm(stream(), {.x = F32({2, 8}), .weight = packed, .out = F32({2, 4})}),
                {"out overlaps x"});
  ExpectRefused(ops().Gemm(stream(), {.x = F32({2, 8}), .weight = {}, .out = Out({2, 4})}),
                {"weight has no data"});
  ExpectRefused(
      ops().Gemm(stream(),
                 {.x = F32({2, 8}), .weight = packed, .bias = Table({5}), .out = Out({2, 4})}),
      {"bias is f32[5]", "f32[4]"});
  const std::vector<int32_t> ids = {0, 4};
  ExpectRefused(ops().Embedding(stream(), {ids, packed, Out({2, 8})}),
                {"token_ids[1] is 4", "[0, 4)"});
  ExpectRefused(ops().Embedding(stream(), {ids, packed, Out({3, 8})}), {"out is f32[3, 8]"});
  const TensorView sources[] = {TensorView(F32({3, 8}).data, DType::kBF16, {3, 8})};
  ExpectRefused(ops().PackWeight(stream(), packed, sources), {"sources have 3 rows", "4"});
  const TensorView f32[] = {F32({4, 8})};
  ExpectRefused(ops().PackWeight(stream(), packed, f32), {"sources[0] is f32", "bf16"});
}

TEST_P(ValidateTest, SiluMul) {
  ExpectRefused(ops().SiluMul(stream(), {F32({2, 15}), Out({2, 8})}),
                {"gate_up is f32[2, 15]", "f32[2, 16]"});
  ExpectRefused(ops().SiluMul(stream(), {F32({2, 16}), F32({2, 8})}), {"out overlaps gate_up"});
}

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

// Two sequences of one row each.
class ValidateAttentionTest : public ValidateTest {
 protected:
  AttentionArgs Good() {
    return {.q = F32({2, 4, 16}),
            .pool = Pool(),
            .layer = 0,
            .query_starts = starts_,
            .context_lens = contexts_,
            .block_tables = {ids_, table_starts_},
            .out = Out({2, 4, 16}),
            .scale = 0.25f};
  }
  template <class Change>
  absl::Status Prefill(const Change& change) {
    AttentionArgs args = Good();
    change(args);
    return ops().AttentionPrefill(stream(), args);
  }
  template <class Change>
  absl::Status Decode(const Change& change) {
    AttentionArgs args = Good();
    change(args);
    return ops().AttentionDecode(stream(), args);
  }
  template <class Change>
  absl::Status Columns(const Change& change) {
    ColumnMassArgs args = {.attention = Good(), .last_rows = 32, .out = Report({2, 2, 9})};
    args.attention.lse = Report({2, 4});
    change(args);
    return ops().ColumnMass(stream(), args);
  }
  // Where lse and masses go.
  TensorView Report(std::initializer_list<int64_t> shape) { return Tensor(arrays_[3], shape); }

  std::vector<int32_t> starts_ = {0, 1, 2};
  std::vector<int32_t> contexts_ = {9, 1};
  std::vector<int32_t> ids_ = {3, 1, 0, 77};  // the last is seen by nobody
  std::vector<int32_t> table_starts_ = {0, 2, 4};
  const std::vector<int32_t> with_filler_ = {9, 0};
};

TEST_P(ValidateAttentionTest, RowsAndContexts) {
  EXPECT_TRUE(Prefill([](auto&) {}).ok());
  EXPECT_TRUE(Decode([](auto&) {}).ok());
  const std::vector<int32_t> two_rows = {0, 2, 2}, short_starts = {0, 2}, falling = {0, 3, 2},
                             wrong_end = {0, 1, 3}, too_long = {17, 1};
  ExpectRefused(Prefill([&](auto& a) { a.query_starts = short_starts; }), {"query_starts has 2"});
  ExpectRefused(Prefill([&](auto& a) { a.query_starts = falling; }), {"sequence 1 -1 rows"});
  ExpectRefused(Prefill([&](auto& a) { a.query_starts = wrong_end; }), {"query_starts", "0 to 3"});
  ExpectRefused(Prefill([&](auto& a) { a.context_lens = too_long; }),
                {"context_lens[0] is 17", "16"});
  ExpectRefused(Prefill([&](auto& a) { a.context_lens = with_filler_; }), {"context_lens[1] is 0"});
  EXPECT_TRUE(Decode([&](auto& a) { a.context_lens = with_filler_; }).ok());
  ExpectRefused(Decode([&](auto& a) { a.query_starts = two_rows; }),
                {"sequence 0 2 rows", "must be 1"});
}

TEST_P(ValidateAttentionTest, TensorsAndNumbers) {
  ExpectRefused(Prefill([&](auto& a) { a.q = F32({2, 3, 16}); }), {"q has 3 heads", "2 KV heads"});
  ExpectRefused(Prefill([&](auto& a) { a.q = F32({2, 4, 8}); }), {"q is f32[2, 4, 8]"});
  ExpectRefused(Prefill([&](auto& a) { a.out = F32({2, 4, 16}); }), {"out overlaps q"});
  ExpectRefused(Prefill([&](auto& a) { a.out.dtype = DType::kBF16; }),
                {"out is bf16[2, 4, 16]", "f32"});
  ExpectRefused(Prefill([&](auto& a) { a.layer = -1; }), {"layer is -1"});
  ExpectRefused(Prefill([&](auto& a) { a.scale = kNaN; }), {"scale is nan"});
  ExpectRefused(Prefill([&](auto& a) { a.window = -1; }), {"window is -1"});
  ExpectRefused(Prefill([&](auto& a) { a.softcap = -1; }), {"softcap is -1"});
  ExpectRefused(Prefill([&](auto& a) { a.softcap = kNaN; }), {"softcap is nan"});
  ExpectRefused(Prefill([&](auto& a) { a.pool = With(Pool(), DType::kBF16, 1, 2); }),
                {"v_scale of 2", "must be 1"});
}

TEST_P(ValidateAttentionTest, BlockTables) {
  const std::vector<int32_t> one_start = {0, 2}, falling = {0, 2, 1}, past = {0, 2, 5},
                             negative = {-1, 2, 4}, swapped = {0, 1, 4};
  const auto refused = [&](const std::vector<int32_t>& starts) {
    return Prefill([&](auto& a) { a.block_tables.starts = starts; });
  };
  ExpectRefused(refused(one_start), {"block_tables.starts has 2 entries", "3"});
  ExpectRefused(refused(falling), {"block_tables.starts[2] is 1", "from 2"});
  ExpectRefused(refused(past), {"block_tables.starts[2] is 5", "4 ids"});
  ExpectRefused(refused(negative), {"block_tables.starts[0] is -1"});
  ExpectRefused(refused(swapped), {"context_lens[0] is 9", "8"});
  ids_[1] = 4;
  ExpectRefused(Prefill([](auto&) {}), {"block_tables[0][1] is 4", "[0, 4)"});
  ids_[1] = -1;
  ExpectRefused(Prefill([](auto&) {}), {"block_tables[0][1] is -1"});
  ExpectRefused(Decode([](auto&) {}), {"block_tables[0][1] is -1"});
  EXPECT_TRUE(Prefill([&](auto& a) { a.window = 1; }).code() == absl::StatusCode::kInvalidArgument);
  contexts_[0] = 8;  // and now nobody sees it
  EXPECT_TRUE(Prefill([](auto&) {}).ok());
}

TEST_P(ValidateAttentionTest, Reports) {
  EXPECT_TRUE(Prefill([&](auto& a) { a.lse = Report({2, 4}); }).ok());
  EXPECT_TRUE(Decode([&](auto& a) { a.block_mass = Report({2, 2, 2}); }).ok());
  ExpectRefused(Prefill([&](auto& a) { a.lse = Report({2, 3}); }), {"lse is f32[2, 3]"});
  ExpectRefused(Prefill([&](auto& a) {
                  a.block_mass = Report({2, 2, 2});
                }),
                {"block_mass is given to prefill"});
  ExpectRefused(Decode([&](auto& a) {
                  a.block_mass = Report({2, 1, 2});
                }),
                {"block_mass is f32[2, 1, 2]", "f32[2, 2, *]"});
  ExpectRefused(Decode([&](auto& a) {
                  a.block_mass = Report({2, 2, 1});
                }),
                {"room for 1 blocks", "context of 9"});
}

TEST_P(ValidateAttentionTest, ColumnMass) {
  EXPECT_TRUE(Columns([](auto&) {}).ok());
  ExpectRefused(Columns([](auto& a) { a.attention.lse = {}; }), {"lse has no data"});
  ExpectRefused(Columns([](auto& a) { a.last_rows = 0; }), {"last_rows is 0", "1 to 1024"});
  ExpectRefused(Columns([](auto& a) { a.last_rows = 1025; }), {"last_rows is 1025"});
  ExpectRefused(Columns([](auto& a) { a.rows_behind = -1; }), {"rows_behind is -1"});
  ExpectRefused(Columns([](auto& a) { a.decay = 0; }), {"decay is 0", "(0, 1]"});
  ExpectRefused(Columns([](auto& a) { a.decay = 1.5f; }), {"decay is 1.5"});
  ExpectRefused(Columns([](auto& a) { a.decay = kNaN; }), {"decay is nan"});
  ExpectRefused(Columns([&](auto& a) { a.out = Report({2, 1, 9}); }), {"out is f32[2, 1, 9]"});
  ExpectRefused(Columns([&](auto& a) {
                  a.out = Report({2, 2, 8});
                }),
                {"room for 8 tokens", "context of 9"});
  ExpectRefused(Columns([](auto& a) { a.attention.layer = 2; }), {"column_mass", "layer is 2"});
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
  EXPECT_EQ(copy({0, 1, 31, 0}, {2, 30}), absl::OkStatus());
  EXPECT_EQ(copy({}, {}), absl::OkStatus());
  ExpectRefused(copy({0, 1}, {2, 30}), {"copy_tokens", "from has 2 slots", "the 2", "2 layers"});
  ExpectRefused(copy({0, 1, 2, 3, 4}, {5, 6}), {"from has 5 slots"});
  ExpectRefused(copy({0, 1, 2, 3}, {5, 32}), {"to[1] is 32", "[0, 32)"});
  ExpectRefused(copy({0, 1, 2, 3}, {-1, 6}), {"to[0] is -1"});
  ExpectRefused(copy({0, 1, 32, 3}, {5, 6}), {"from[2] is 32", "[0, 32)"});
  ExpectRefused(copy({0, -1, 2, 3}, {5, 6}), {"from[1] is -1"});
  ExpectRefused(copy({0, 1, 2, 3}, {6, 6}), {"to names slot 6 twice"});
  ExpectRefused(copy({0, 1, 2, 6}, {5, 6}), {"from[1] in layer 1 is slot 6"});
  ExpectRefused(copy({6, 1, 2, 3}, {5, 6}), {"from[0] in layer 0 is slot 6"});
  KvPoolView large = Pool();
  large.num_blocks = 1 << 28;  // of 8 tokens: one slot more than an int32 can name
  const std::vector<int32_t> from = {0, 1}, to = {2};
  ExpectRefused(ops().CopyTokens(stream(), {large, from, to}), {"268435456 blocks", "2147483647"});
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

TEST_P(ValidateTest, Sample) {
  const std::vector<int32_t> ids = {16};
  const auto refused = [&](const SampleRow& row) {
    const SampleRow rows[] = {{}, row};
    std::vector<SampledToken> out(2);
    return ops().Sample(stream(), {F32({2, 16}), rows, out});
  };
  EXPECT_TRUE(refused({}).ok());
  ExpectRefused(refused({.temperature = -1}), {"rows[1].temperature is -1"});
  ExpectRefused(refused({.temperature = kNaN}), {"rows[1].temperature is nan"});
  ExpectRefused(refused({.top_k = -1}), {"rows[1].top_k is -1"});
  ExpectRefused(refused({.top_p = 0}), {"rows[1].top_p is 0", "(0, 1]"});
  ExpectRefused(refused({.top_p = 1.5f}), {"rows[1].top_p is 1.5"});
  ExpectRefused(refused({.min_p = 1}), {"rows[1].min_p is 1"});
  ExpectRefused(refused({.repetition_penalty = 0}), {"repetition_penalty is 0"});
  ExpectRefused(refused({.presence_penalty = kNaN}), {"presence_penalty is nan"});
  ExpectRefused(refused({.frequency_penalty = kNaN}), {"frequency_penalty is nan"});
  ExpectRefused(refused({.position = -1}), {"position is -1"});
  ExpectRefused(refused({.num_logprobs = 17}), {"num_logprobs is 17", "16"});
  ExpectRefused(refused({.presence_penalty = 1, .output_ids = ids}), {"output_ids[0] is 16"});
  ExpectRefused(refused({.excluded_ids = ids}), {"excluded_ids[0] is 16"});
  ExpectRefused(refused({.allowed_ids = ids}), {"allowed_ids[0] is 16"});
  ExpectRefused(refused({.given_token = 16}), {"given_token is 16"});
  const std::vector<TokenBias> outside = {{0, 1.0f}, {16, 1.0f}};
  const std::vector<TokenBias> large = {{0, 101.0f}};
  const std::vector<TokenBias> not_a_number = {{0, kNaN}};
  const std::vector<TokenBias> many(kMaxLogitBiases + 1);
  ExpectRefused(refused({.biases = outside}), {"biases names token 16"});
  ExpectRefused(refused({.biases = large}), {"biases is 101"});
  ExpectRefused(refused({.biases = not_a_number}), {"biases is nan"});
  ExpectRefused(refused({.biases = many}), {"1025 biases", "1024"});
  std::vector<SampledToken> out(1);
  const SampleRow rows[2] = {};
  ExpectRefused(ops().Sample(stream(), {F32({2, 16}), rows, out}), {"out has 1 entries"});
}

TANDEM_INSTANTIATE_OPS_TEST(ValidateTest);
TANDEM_INSTANTIATE_OPS_TEST(ValidateAttentionTest);

}  // namespace
}  // namespace tandem::ops_validate_test
