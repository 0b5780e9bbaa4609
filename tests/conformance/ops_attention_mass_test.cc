#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/attention_fixture.h"

// How much attention blocks and tokens got, which eviction ranks them by.

namespace tandem::ops_attention_mass_test {
namespace {

using Problem = AttentionProblem;

class AttentionMassTest : public AttentionOpsTest {
 protected:
  // Masses of a few thousandths of the whole are what eviction compares.
  void ExpectMass(std::span<const float> actual, const std::vector<double>& expected) {
    const double bound = GetParam().backend == "cpu" ? 5e-5 : 1e-2;
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      if (expected[i] == 0) {
        ASSERT_EQ(actual[i], 0) << "entry " << i << " that nobody sees";
      } else {
        ASSERT_NEAR(actual[i], expected[i], bound * expected[i] + 1e-6) << "entry " << i;
      }
    }
  }

  std::vector<float> BlockMass(const Problem& p, int64_t max_blocks,
                               SplitMode splits = SplitMode::kBalanced) {
    const AttentionRun run = {
        .op = AttentionOp::kDecode, .splits = splits, .mass_blocks = max_blocks};
    return Run(p, Whole(p), run).block_mass;
  }

  void ExpectBlockMass(const Problem& p, int64_t extra_blocks = 0) {
    const int64_t max_blocks = std::max<int64_t>(1, MaxBlocks(p) + extra_blocks);
    const std::vector<float> mass = BlockMass(p, max_blocks);
    ExpectMass(mass, Expected(p, max_blocks).block_mass);
    ExpectMass(BlockMass(p, max_blocks, SplitMode::kFixed), Expected(p, max_blocks).block_mass);
    for (size_t row = 0; row * static_cast<size_t>(max_blocks) < mass.size(); ++row) {
      double sum = 0;
      for (int64_t i = 0; i < max_blocks; ++i) {
        sum += mass[row * static_cast<size_t>(max_blocks) + static_cast<size_t>(i)];
      }
      const AttentionSequence& s = p.sequences[row / static_cast<size_t>(p.shape.kv_heads)];
      const double whole = s.context == 0 ? 0 : p.shape.group;
      EXPECT_NEAR(sum, whole, (GetParam().on_cpu() ? 1e-5 : 1e-2) * whole);
    }
  }

  // Which rows count, and what they weigh.
  struct Rows {
    int32_t last = 32;
    int32_t behind = 0;
    float decay = 1;
  };
  static ColumnMassArgs MassArgs(const Rows& rows) {
    ColumnMassArgs args;
    args.last_rows = rows.last;
    args.rows_behind = rows.behind;
    args.decay = rows.decay;
    return args;
  }

  // Room for the longest context.
  static int64_t MaxTokens(const Problem& p) {
    int64_t max_tokens = 0;
    for (const AttentionSequence& s : p.sequences)
      max_tokens = std::max<int64_t>(max_tokens, s.context);
    return max_tokens;
  }

  // ColumnMass of the last rows of every sequence, with the lse of a prefill before.
  std::vector<float> ColumnMass(const Problem& p, const AttentionBatch& batch, const Rows& rows,
                                int64_t max_tokens) {
    const DType act = p.shape.act;
    const DeviceArray pool = ToDevice(p.pool);
    const auto first = p.q.begin() + batch.first_row * p.row();
    const DeviceArray q = ToDeviceAs(act, {first, first + batch.num_rows() * p.row()});
    const DeviceArray out = NewOutput(batch.num_rows() * p.row(), act);
    const DeviceArray lse = NewOutput(batch.num_rows() * p.num_heads());
    const DeviceArray mass = NewOutput(batch.num_sequences() * p.shape.kv_heads * max_tokens);
    ColumnMassArgs args = MassArgs(rows);
    args.attention = HostArgs(p, batch);
    args.attention.out = Tensor(out, {batch.num_rows(), p.num_heads(), p.shape.head_dim}, act);
    args.attention.q = Tensor(q, {batch.num_rows(), p.num_heads(), p.shape.head_dim}, act);
    args.attention.pool = p.Pool(pool.data());
    args.attention.lse = Tensor(lse, {batch.num_rows(), p.num_heads()});
    args.out = Tensor(mass, {batch.num_sequences(), p.shape.kv_heads, max_tokens});
    EXPECT_EQ(ops().AttentionPrefill(stream(), args.attention), absl::OkStatus());
    EXPECT_EQ(ops().ColumnMass(stream(), args), absl::OkStatus());
    return mass.Download<float>();
  }

  std::vector<double> ExpectedColumns(const Problem& p, const Rows& rows, int64_t max_tokens) {
    const AttentionBatch batch = Whole(p);
    ColumnMassArgs args = MassArgs(rows);
    args.attention = HostArgs(p, batch);
    args.out =
        TensorView(nullptr, DType::kF32, {batch.num_sequences(), p.shape.kv_heads, max_tokens});
    return reference::ColumnMass(args);
  }

  void ExpectColumnMass(const Problem& p, const Rows& rows, int64_t extra_tokens = 0) {
    const int64_t max_tokens = MaxTokens(p) + extra_tokens;
    ExpectMass(ColumnMass(p, Whole(p), rows, max_tokens), ExpectedColumns(p, rows, max_tokens));
  }
};

TEST_P(AttentionMassTest, BlocksEqualReferenceForEveryGroupAndType) {
  for (int32_t group : {1, 3, 4, 8, 16}) {
    SCOPED_TRACE(group);
    ExpectBlockMass(MakeProblem({.group = group}, {{1, 33}, {1, 150}}));
  }
  ExpectBlockMass(MakeProblem({.kv_heads = 1, .group = 150, .head_dim = 32}, {{1, 40}}));
  for (DType dtype : KvTypes(HeadShape().head_dim)) {
    SCOPED_TRACE(Name(dtype));
    ExpectBlockMass(MakeProblem({.dtype = dtype}, {{1, 33}, {1, 150}}));
  }
  for (DType act : ActivationTypes()) {
    ExpectBlockMass(MakeProblem({.dtype = DType::kF8E4M3, .act = act}, {{1, 33}, {1, 150}}));
  }
}

TEST_P(AttentionMassTest, BlocksEqualReferenceForEveryBlockSize) {
  for (int32_t block_tokens : {8, 16, 32, 64, 256}) {
    for (int32_t head_dim : {32, 96, 128}) {
      SCOPED_TRACE(block_tokens);
      const HeadShape shape = {.kv_heads = 1, .head_dim = head_dim, .block_tokens = block_tokens};
      ExpectBlockMass(MakeProblem(shape, {{1, block_tokens}, {1, 2 * block_tokens + 1}}));
      ExpectBlockMass(MakeProblem(shape, {{1, 1}, {1, 0}, {1, 99}}), 3);
    }
  }
}

TEST_P(AttentionMassTest, BlocksOutsideTheWindowHaveNone) {
  for (int32_t window : {1, 20, 100}) {
    SCOPED_TRACE(window);
    ExpectBlockMass(MakeProblem({.window = window}, {{1, 300}, {1, 16}, {1, 17}}));
  }
  ExpectBlockMass(MakeProblem({.softcap = 15}, {{1, 300}, {1, 16}}, 3.0f));
}

TEST_P(AttentionMassTest, BlocksOfALongContext) {
  ExpectBlockMass(MakeProblem({}, {{1, 3000}, {1, 5}, {1, 600}}));
  ExpectBlockMass(MakeProblem({.kv_heads = 1}, {{1, 3000}}, 3.0f));
}

// P2: on the CPU in every way to split, elsewhere with fixed splits.
TEST_P(AttentionMassTest, NeighboursChangeNoBitOfBlocks) {
  const Problem p = MakeProblem({}, {{1, 600}, {1, 40}, {1, 301}});
  const int64_t max_blocks = MaxBlocks(p);
  AttentionRun run = {.op = AttentionOp::kDecode, .splits = SplitMode::kFixed};
  run.mass_blocks = max_blocks;
  const std::vector<float> together = Run(p, Whole(p), run).block_mass;
  const auto row = static_cast<size_t>(p.shape.kv_heads * max_blocks);
  for (int num_threads : ThreadCounts()) {
    UseThreads(num_threads);
    for (size_t s = 0; s < p.sequences.size(); ++s) {
      EXPECT_TRUE(BitwiseEqual(Run(p, Alone(p, s), run).block_mass,
                               std::span(together).subspan(s * row, row)));
    }
  }
}

TEST_P(AttentionMassTest, ColumnsEqualReference) {
  for (int32_t last_rows : {1, 8, 32, 64, 1024}) {
    SCOPED_TRACE(last_rows);
    // Fewer rows than are asked for, as many, and more; a sequence without any.
    ExpectColumnMass(MakeProblem({}, {{20, 60}, {64, 70}, {0, 30}, {1, 17}, {90, 130}}),
                     {.last = last_rows});
  }
}

// Rows lose weight in steps of 16, counted from behind all rows of the window.
TEST_P(AttentionMassTest, ColumnsOfRowsThatDecay) {
  const Problem p = MakeProblem({.group = 3}, {{20, 60}, {0, 30}, {90, 130}});
  for (const Rows& rows : {Rows{64, 0, 0.5f}, {64, 7, 0.5f}, {90, 16, 0.9f}, {17, 1000, 0.99f}}) {
    SCOPED_TRACE(rows.behind);
    ExpectColumnMass(p, rows);
  }
  // No scale of the bounds: whatever decays so far is nothing, and not what an overflow makes.
  const std::vector<float> none = ColumnMass(
      p, Whole(p), {.behind = std::numeric_limits<int32_t>::max(), .decay = 0.5f}, MaxTokens(p));
  EXPECT_TRUE(std::all_of(none.begin(), none.end(), [](float sum) { return sum == 0; }));
}

// A prompt that is computed in pieces: what the pieces have adds up to what the whole has.
TEST_P(AttentionMassTest, ColumnsOfPiecesAddUpToThoseOfTheWhole) {
  const Problem p = MakeProblem({.group = 3, .window = 70}, {{60, 150}});
  const std::vector<double> whole =
      ExpectedColumns(p, {.last = 50, .behind = 5, .decay = 0.7f}, 150);
  std::vector<float> sum(whole.size());
  struct Piece {
    int32_t first;
    int32_t count;
    int32_t counted;
  };
  for (const Piece& piece : {Piece{0, 30, 20}, {30, 13, 13}, {43, 17, 17}}) {
    const int32_t end = piece.first + piece.count;
    AttentionBatch batch;
    batch.first_row = piece.first;
    batch.Add({.q_len = piece.count, .context = 90 + end}, p.tables[0]);
    const Rows rows = {.last = piece.counted, .behind = 5 + 60 - end, .decay = 0.7f};
    const std::vector<float> mass = ColumnMass(p, batch, rows, 150);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += mass[i];
  }
  ExpectMass(sum, whole);
}

// P2, on every backend: a column is one thread's sum, in the order of the rows.
TEST_P(AttentionMassTest, NeighboursChangeNoBitOfColumns) {
  const auto context = static_cast<int32_t>(Size(900, 300));
  const Problem p = MakeProblem({.group = 3}, {{70, context}, {40, 40}, {1, 301}});
  const int64_t max_tokens = MaxTokens(p);
  const Rows rows = {.last = 60, .decay = 0.8f};
  const std::vector<float> together = ColumnMass(p, Whole(p), rows, max_tokens);
  const auto row = static_cast<size_t>(p.shape.kv_heads * max_tokens);
  for (int num_threads : ThreadCounts()) {
    UseThreads(num_threads);
    for (size_t s = 0; s < p.sequences.size(); ++s) {
      EXPECT_TRUE(BitwiseEqual(ColumnMass(p, Alone(p, s), rows, max_tokens),
                               std::span(together).subspan(s * row, row)));
    }
  }
}

TEST_P(AttentionMassTest, ColumnsEqualReferenceForEveryShapeAndType) {
  for (DType act : ActivationTypes()) {
    for (int32_t head_dim : {24, 64, 96, 128, 256}) {
      for (DType dtype : KvTypes(head_dim)) {
        SCOPED_TRACE(std::to_string(head_dim) + " " + std::string(Name(dtype)));
        if (act != DType::kF32 && (dtype == DType::kF16 || dtype == DType::kBF16)) continue;
        const HeadShape shape = {.kv_heads = 1,
                                 .group = 3,
                                 .head_dim = head_dim,
                                 .block_tokens = 32,
                                 .dtype = dtype,
                                 .act = act};
        ExpectColumnMass(MakeProblem(shape, {{9, 40}}), {.last = 16});
      }
    }
  }
}

TEST_P(AttentionMassTest, ColumnsOutsideTheWindowHaveNone) {
  for (int32_t window : {1, 10, 50}) {
    ExpectColumnMass(MakeProblem({.kv_heads = 1, .window = window}, {{40, 120}, {3, 90}}), {}, 7);
  }
  ExpectColumnMass(MakeProblem({.kv_heads = 1, .softcap = 10}, {{40, 120}}, 3.0f), {});
}

// As many rows as may count, and a window that ends before some of them begin.
TEST_P(AttentionMassTest, ColumnsOfManyRows) {
  const auto rows = static_cast<int32_t>(Size(1100, 150));
  const Rows all = {.last = 1024, .decay = 0.95f};
  ExpectColumnMass(MakeProblem({.kv_heads = 1, .group = 3}, {{rows, rows + 70}}), all);
  ExpectColumnMass(MakeProblem({.kv_heads = 1, .window = 40}, {{rows, rows + 300}}), all);
}

// The last chunk of a long prompt, over all that was stored before.
TEST_P(AttentionMassTest, ColumnsOfALongContext) {
  ExpectColumnMass(MakeProblem({.kv_heads = 1}, {{40, 2000}, {64, 300}}), {.last = 64});
}

TANDEM_INSTANTIATE_OPS_TEST_ON(AttentionMassTest, AttentionSetups());

}  // namespace
}  // namespace tandem::ops_attention_mass_test
