#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

namespace tandem {
namespace {

constexpr int32_t kNoBlock = 1 << 30;

struct Shape {
  int32_t kv_heads = 2;
  int32_t group = 2;
  int32_t head_dim = 64;
  int32_t block_tokens = 16;
  DType dtype = DType::kBF16;
  int32_t window = 0;
};

struct Sequence {
  int32_t q_len = 1;
  int32_t context = 1;
};

// Sequences over a pool in which all that no row sees is NaN, all blocks lie in random order, and
// table entries past the context are out of range.
struct Problem {
  Shape shape;
  std::vector<Sequence> sequences;
  std::vector<float> q;
  std::vector<std::byte> pool;
  int32_t num_blocks = 0;
  int64_t max_blocks = 0;
  std::vector<int32_t> tables;  // [sequence][max_blocks]
};

class AttentionTest : public OpsTest {
 protected:
  static constexpr int32_t kNumLayers = 2;
  static constexpr int32_t kLayer = 1;

  KvPoolView PoolOf(const Problem& p, void* data) {
    return {.data = static_cast<std::byte*>(data),
            .dtype = p.shape.dtype,
            .num_layers = kNumLayers,
            .num_blocks = p.num_blocks,
            .num_kv_heads = p.shape.kv_heads,
            .block_tokens = p.shape.block_tokens,
            .head_dim = p.shape.head_dim};
  }

  void SetKv(Problem& p, int part, int32_t block, int32_t offset, std::span<const float> values) {
    const KvPoolView pool = PoolOf(p, p.pool.data());
    const int64_t dim = pool.head_dim;
    for (int32_t head = 0; head < pool.num_kv_heads; ++head) {
      for (int64_t i = 0; i < dim; ++i) {
        const int64_t row = (int64_t{part} * pool.num_kv_heads + head) * pool.block_tokens + offset;
        reference::Store(pool.dtype, values[static_cast<size_t>(head * dim + i)],
                         pool.Extent(kLayer, block), row * dim + i);
      }
    }
  }

  Problem MakeProblem(const Shape& shape, std::vector<Sequence> sequences, float q_scale = 1) {
    Problem p = {.shape = shape, .sequences = std::move(sequences)};
    int32_t used = 0;
    for (const Sequence& s : p.sequences) {
      const int32_t blocks = (s.context + shape.block_tokens - 1) / shape.block_tokens;
      used += blocks;
      p.max_blocks = std::max<int64_t>(p.max_blocks, blocks + 2);
    }
    p.num_blocks = used + 3;
    std::vector<int32_t> order(static_cast<size_t>(p.num_blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng_);
    const int64_t bytes = PoolOf(p, nullptr).ExtentBytes() * kNumLayers * p.num_blocks;
    p.pool.assign(static_cast<size_t>(bytes), std::byte{0xff});  // a NaN in every type
    p.tables.assign(p.sequences.size() * static_cast<size_t>(p.max_blocks), kNoBlock);
    size_t next = 0;
    int64_t queries = 0;
    for (size_t s = 0; s < p.sequences.size(); ++s) {
      int32_t* table = p.tables.data() + s * static_cast<size_t>(p.max_blocks);
      const auto [q_len, context] = p.sequences[s];
      const int32_t unseen = shape.window > 0 ? std::max(0, context - q_len + 1 - shape.window) : 0;
      for (int32_t t = 0; t < context; ++t) {
        if (t % shape.block_tokens == 0) {
          const int32_t block = order[next++];
          if (t + shape.block_tokens > unseen) table[t / shape.block_tokens] = block;
        }
        if (t < unseen) continue;
        const int32_t block = table[t / shape.block_tokens];
        const int64_t elements = int64_t{shape.kv_heads} * shape.head_dim;
        SetKv(p, 0, block, t % shape.block_tokens, Random(elements));
        SetKv(p, 1, block, t % shape.block_tokens, Random(elements));
      }
      queries += q_len;
    }
    p.q = Random(queries * shape.kv_heads * shape.group * shape.head_dim, q_scale);
    return p;
  }

  enum class Op { kPrefill, kDecode };

  // Attention of the rows of `sequences`, whose queries start at `first_row` of p.q.
  std::vector<float> Run(const Problem& p, const std::vector<Sequence>& sequences,
                         const std::vector<int32_t>& tables, int64_t first_row, Op op) {
    std::vector<int32_t> starts = {0};
    std::vector<int32_t> contexts;
    for (const Sequence& s : sequences) {
      starts.push_back(starts.back() + s.q_len);
      contexts.push_back(s.context);
    }
    const int64_t num_heads = int64_t{p.shape.kv_heads} * p.shape.group;
    const int64_t row = num_heads * p.shape.head_dim;
    const std::vector<float> rows(p.q.begin() + first_row * row,
                                  p.q.begin() + (first_row + starts.back()) * row);
    const DeviceArray pool = ToDevice(p.pool);
    const DeviceArray q = ToDevice(rows);
    const DeviceArray table = ToDevice(tables);
    const DeviceArray out = NewOutput(starts.back() * row);
    const AttentionArgs args = {
        .q = Tensor(q, {starts.back(), num_heads, p.shape.head_dim}),
        .pool = PoolOf(p, pool.data()),
        .layer = kLayer,
        .query_starts = starts,
        .context_lens = contexts,
        .block_tables = TableView(table.data(), sequences.size(), p.max_blocks),
        .out = Tensor(out, {starts.back(), num_heads, p.shape.head_dim}),
        .scale = 1 / std::sqrt(static_cast<float>(p.shape.head_dim)),
        .window = p.shape.window};
    const absl::Status status = op == Op::kPrefill ? ops().AttentionPrefill(stream(), args)
                                                   : ops().AttentionDecode(stream(), args);
    EXPECT_TRUE(status.ok()) << status;
    return out.Download<float>();
  }

  std::vector<float> RunAll(const Problem& p, Op op = Op::kPrefill) {
    return Run(p, p.sequences, p.tables, 0, op);
  }

  std::vector<double> Expected(const Problem& p) {
    std::vector<int32_t> starts = {0};
    std::vector<int32_t> contexts;
    for (const Sequence& s : p.sequences) {
      starts.push_back(starts.back() + s.q_len);
      contexts.push_back(s.context);
    }
    const int64_t num_heads = int64_t{p.shape.kv_heads} * p.shape.group;
    return reference::Attention(
        {.q = Tensor(p.q, {starts.back(), num_heads, p.shape.head_dim}),
         .pool = PoolOf(p, const_cast<std::byte*>(p.pool.data())),
         .layer = kLayer,
         .query_starts = starts,
         .context_lens = contexts,
         .block_tables = TableView(p.tables.data(), p.sequences.size(), p.max_blocks),
         .scale = 1 / std::sqrt(static_cast<float>(p.shape.head_dim)),
         .window = p.shape.window});
  }

  void ExpectRight(const Problem& p, double bound = 1e-5) {
    const std::vector<double> expected = Expected(p);
    EXPECT_LT(RelativeError(RunAll(p), expected), bound);
    const bool decode = std::all_of(p.sequences.begin(), p.sequences.end(),
                                    [](const Sequence& s) { return s.q_len == 1; });
    if (decode) {
      EXPECT_LT(RelativeError(RunAll(p, Op::kDecode), expected), bound);
    }
  }

  static TensorView TableView(const void* tables, size_t rows, int64_t columns) {
    return TensorView(const_cast<void*>(tables), DType::kI32,
                      {static_cast<int64_t>(rows), columns});
  }
};

TEST_P(AttentionTest, EqualsReferenceForEveryGroupSize) {
  for (int32_t group : {1, 2, 3, 4, 7, 8}) {
    SCOPED_TRACE(group);
    ExpectRight(MakeProblem({.group = group}, {{1, 33}, {19, 50}}));
    ExpectRight(MakeProblem({.group = group}, {{1, 1}, {1, 40}}));
  }
  ExpectRight(MakeProblem({.kv_heads = 1, .group = 150, .head_dim = 32}, {{2, 20}}));
}

TEST_P(AttentionTest, EqualsReferenceForEveryHeadDimAndType) {
  for (int32_t head_dim : {8, 24, 32, 64, 80, 96, 128, 256}) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(std::to_string(head_dim) + " " + std::string(Name(dtype)));
      ExpectRight(MakeProblem({.head_dim = head_dim, .dtype = dtype}, {{5, 21}, {1, 18}}));
    }
  }
}

TEST_P(AttentionTest, EqualsReferenceForEveryBlockSizeAndEdge) {
  for (int32_t block_tokens : {8, 16, 32, 64}) {
    SCOPED_TRACE(block_tokens);
    std::vector<Sequence> edges;
    for (int32_t edge : {1, 8, 16, block_tokens, 2 * block_tokens, 256}) {
      for (int32_t context : {edge - 1, edge, edge + 1}) {
        if (context > 0) edges.push_back({1, context});
      }
    }
    const Shape shape = {.kv_heads = 1, .head_dim = 32, .block_tokens = block_tokens};
    ExpectRight(MakeProblem(shape, edges));
    ExpectRight(MakeProblem(shape, {{0, 0}, {block_tokens + 1, block_tokens + 1}, {0, 3}, {3, 3}}));
  }
}

TEST_P(AttentionTest, EqualsReferenceWithWindows) {
  for (int32_t block_tokens : {8, 32}) {
    for (int32_t window : {1, 5, 16, 40, 300}) {
      SCOPED_TRACE(window);
      const Shape shape = {
          .kv_heads = 1, .head_dim = 32, .block_tokens = block_tokens, .window = window};
      ExpectRight(MakeProblem(shape, {{30, 100}, {1, 90}, {20, 20}, {17, 530}}));
      ExpectRight(MakeProblem(shape, {{1, 300}, {1, 513}, {1, 7}}));
    }
  }
}

TEST_P(AttentionTest, LongContextStaysAccurate) {
  const Shape shape = {.kv_heads = 1, .head_dim = 32};
  ExpectRight(MakeProblem(shape, {{1, 5000}}));
  ExpectRight(MakeProblem(shape, {{1, 5000}}, 4.0f), 2e-4);  // peaked
}

TEST_P(AttentionTest, OneHugeLogitTakesAll) {
  Problem p = MakeProblem({.kv_heads = 1, .group = 1, .head_dim = 32}, {{1, 600}});
  std::fill(p.q.begin(), p.q.end(), 100.0f);
  const std::vector<float> huge(32, 1000.0f);
  SetKv(p, 0, p.tables[300 / 16], 300 % 16, huge);
  const std::vector<float> value(32, 3.0f);
  SetKv(p, 1, p.tables[300 / 16], 300 % 16, value);
  EXPECT_EQ(RunAll(p), value);
  EXPECT_EQ(RunAll(p, Op::kDecode), value);
}

TEST_P(AttentionTest, EqualKeysAverageTheValues) {
  Problem p = MakeProblem({.kv_heads = 1, .head_dim = 32}, {{1, 300}});
  for (int32_t t = 0; t < 300; ++t) {
    SetKv(p, 0, p.tables[static_cast<size_t>(t / 16)], t % 16, std::vector<float>(32, 0.5f));
  }
  ExpectRight(p);
}

TEST_P(AttentionTest, SequencesMayShareBlocks) {
  Problem p = MakeProblem({}, {{1, 64}, {1, 64}});
  std::copy_n(p.tables.begin(), 3, p.tables.begin() + p.max_blocks);
  ExpectRight(p);
}

// P2: the rows of one sequence, whole, in chunks, and one by one through decode. Long chunks widen
// K and V once for many rows, short ones and decode read them straight from the pool.
TEST_P(AttentionTest, ChunkingChangesNoBit) {
  constexpr int32_t kContext = 290;
  for (const Shape& shape : {Shape{.group = 1, .head_dim = 64},
                             Shape{.kv_heads = 1, .group = 3, .head_dim = 80, .window = 40},
                             Shape{.kv_heads = 1, .group = 5, .dtype = DType::kF16},
                             Shape{.kv_heads = 1, .head_dim = 128, .dtype = DType::kF32},
                             Shape{.kv_heads = 1, .block_tokens = 8, .window = 270}}) {
    SCOPED_TRACE(shape.head_dim);
    const Problem p = MakeProblem(shape, {{kContext, kContext}});
    const std::vector<float> whole = RunAll(p);
    for (int32_t chunk : {1, 17, 128}) {
      SCOPED_TRACE(chunk);
      std::vector<float> rows;
      for (int32_t done = 0; done < kContext; done += chunk) {
        const int32_t q_len = std::min(chunk, kContext - done);
        const std::vector<float> part =
            Run(p, {{q_len, done + q_len}}, p.tables, done, Op::kPrefill);
        rows.insert(rows.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(BitwiseEqual(rows, whole));
    }
    std::vector<float> rows;
    for (int32_t done = 0; done < kContext; ++done) {
      const std::vector<float> part = Run(p, {{1, done + 1}}, p.tables, done, Op::kDecode);
      rows.insert(rows.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(BitwiseEqual(rows, whole));
  }
}

// P2: a sequence alone and among others, for every number of threads. With few sequences decode
// computes the chunks of a context apart, with many it does not.
TEST_P(AttentionTest, NeighboursAndThreadsChangeNoBit) {
  std::vector<Sequence> sequences = {{1, 1500}, {1, 3}, {1, 257}};
  for (int i = 0; i < 30; ++i) sequences.push_back({1, 10 + 37 * i});
  const Problem p = MakeProblem({.group = 3}, sequences);
  const std::vector<float> together = RunAll(p, Op::kDecode);
  for (int num_threads : {1, 2, 3}) {
    SCOPED_TRACE(num_threads);
    UseThreads(num_threads);
    EXPECT_TRUE(BitwiseEqual(RunAll(p, Op::kDecode), together));
    EXPECT_TRUE(BitwiseEqual(RunAll(p, Op::kPrefill), together));
    const size_t row = together.size() / sequences.size();
    for (size_t s : {0, 1, 2, 20}) {
      const std::vector<int32_t> table(p.tables.begin() + s * p.max_blocks,
                                       p.tables.begin() + (s + 1) * p.max_blocks);
      const std::vector<float> alone =
          Run(p, {sequences[s]}, table, static_cast<int64_t>(s), Op::kDecode);
      EXPECT_TRUE(BitwiseEqual(alone, std::span(together).subspan(s * row, row)));
    }
  }
}

// What a later token holds, be it NaN, never reaches the rows before it, though they share tiles.
TEST_P(AttentionTest, LaterTokensNeverReachEarlierRows) {
  Problem p = MakeProblem({.kv_heads = 1}, {{40, 40}});
  const std::vector<float> before = RunAll(p);
  const std::vector<float> poison(64, std::numeric_limits<float>::quiet_NaN());
  SetKv(p, 0, p.tables[2], 7, poison);
  SetKv(p, 1, p.tables[2], 7, poison);
  const std::vector<float> after = RunAll(p);
  const size_t row = before.size() / 40;
  EXPECT_TRUE(BitwiseEqual(std::span(before).first(39 * row), std::span(after).first(39 * row)));
  EXPECT_TRUE(std::isnan(after.back()));
}

TANDEM_INSTANTIATE_OPS_TEST(AttentionTest);

}  // namespace
}  // namespace tandem
