#include "tests/support/attention_fixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/step_staging.h"
#include "tests/support/reference_kv.h"

namespace tandem {
namespace {

constexpr int32_t kNoBlock = 1 << 30;

// The first token of a sequence that one of its rows sees.
int32_t FirstSeen(const HeadShape& shape, const AttentionSequence& s) {
  return shape.window > 0 ? std::max(0, s.context - std::max(1, s.q_len) + 1 - shape.window) : 0;
}

float Scale(const HeadShape& shape) { return 1 / std::sqrt(static_cast<float>(shape.head_dim)); }

// The largest relative error of one row.
double WorstRow(std::span<const float> actual, std::span<const double> expected, size_t row) {
  double worst = 0;
  for (size_t at = 0; at < actual.size(); at += row) {
    worst = std::max(worst, RelativeError(actual.subspan(at, row), expected.subspan(at, row)));
  }
  return worst;
}

// The largest error of one element over the root mean square of its row: what a few wrong elements
// of a long row, which its norm hides, show in.
double WorstElement(std::span<const float> actual, std::span<const double> expected, size_t row) {
  if (actual.size() != expected.size()) return INFINITY;
  double worst = 0;
  for (size_t at = 0; at < actual.size(); at += row) {
    double squares = 0;
    double error = 0;
    for (size_t i = at; i < at + row; ++i) {
      if (std::isnan(actual[i])) return INFINITY;
      squares += expected[i] * expected[i];
      error = std::max(error, std::abs(actual[i] - expected[i]));
    }
    const double rms = std::sqrt(squares / static_cast<double>(row));
    worst = std::max(worst, error / std::max(rms, 1e-30));
  }
  return worst;
}

}  // namespace

KvPoolView AttentionProblem::Pool(const void* data) const {
  return {.data = static_cast<std::byte*>(const_cast<void*>(data)),
          .dtype = shape.dtype,
          .num_layers = kNumLayers,
          .num_blocks = num_blocks,
          .num_kv_heads = shape.kv_heads,
          .block_tokens = shape.block_tokens,
          .head_dim = shape.head_dim,
          .k_scale = shape.k_scale,
          .v_scale = shape.v_scale};
}

void AttentionProblem::SetKv(int part, int32_t block, int32_t offset, std::span<const float> values,
                             int32_t layer) {
  const KvPoolView view = Pool(pool.data());
  const auto side = static_cast<KvSide>(part);
  const auto dim = static_cast<size_t>(view.head_dim);
  for (int32_t head = 0; head < view.num_kv_heads; ++head) {
    reference::StoreRow(view, side, values.subspan(static_cast<size_t>(head) * dim, dim),
                        view.Extent(layer, block) + view.RowAt(side, head, offset));
  }
}

void AttentionProblem::SetToken(size_t seq, int32_t token, int part,
                                std::span<const float> values) {
  const int32_t block = tables[seq][static_cast<size_t>(token / shape.block_tokens)];
  SetKv(part, block, token % shape.block_tokens, values);
}

void AttentionBatch::Add(AttentionSequence sequence, std::span<const int32_t> table) {
  query_starts.push_back(query_starts.back() + sequence.q_len);
  context_lens.push_back(sequence.context);
  block_ids.insert(block_ids.end(), table.begin(), table.end());
  table_starts.push_back(static_cast<int32_t>(block_ids.size()));
}

AttentionProblem AttentionOpsTest::MakeProblem(const HeadShape& shape,
                                               std::vector<AttentionSequence> sequences,
                                               float q_scale) {
  AttentionProblem p = {.shape = shape, .sequences = std::move(sequences)};
  const auto blocks_of = [&](const AttentionSequence& s) {
    return (s.context + shape.block_tokens - 1) / shape.block_tokens;
  };
  p.num_blocks = 3;
  for (const AttentionSequence& s : p.sequences) p.num_blocks += blocks_of(s);
  std::vector<int32_t> order(static_cast<size_t>(p.num_blocks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), rng_);
  const int64_t bytes = p.Pool(nullptr).ExtentBytes() * p.kNumLayers * p.num_blocks;
  p.pool.assign(static_cast<size_t>(bytes), std::byte{0xff});  // a NaN in every type
  const int64_t elements = int64_t{shape.kv_heads} * shape.head_dim;
  size_t next = 0;
  int64_t rows = 0;
  for (const AttentionSequence& s : p.sequences) {
    // Some tables end with the context, others have room for more.
    std::vector<int32_t>& table = p.tables.emplace_back();
    table.assign(static_cast<size_t>(blocks_of(s)) + p.tables.size() % 3, kNoBlock);
    const int32_t first_seen = FirstSeen(shape, s);
    for (int32_t t = first_seen; t < s.context; ++t) {
      int32_t& block = table[static_cast<size_t>(t / shape.block_tokens)];
      if (block == kNoBlock) block = order[next++];
      p.SetToken(p.tables.size() - 1, t, 0, Random(elements));
      p.SetToken(p.tables.size() - 1, t, 1, Random(elements));
    }
    rows += s.q_len;
  }
  const DType product = shape.act == DType::kF32 ? ProductType(shape.dtype) : shape.act;
  p.q = Rounded(product, Random(rows * p.row(), q_scale));
  return p;
}

AttentionBatch AttentionOpsTest::Whole(const AttentionProblem& p) {
  AttentionBatch batch;
  for (size_t s = 0; s < p.sequences.size(); ++s) batch.Add(p.sequences[s], p.tables[s]);
  return batch;
}

AttentionBatch AttentionOpsTest::Alone(const AttentionProblem& p, size_t seq) {
  AttentionBatch batch;
  for (size_t s = 0; s < seq; ++s) batch.first_row += p.sequences[s].q_len;
  batch.Add(p.sequences[seq], p.tables[seq]);
  return batch;
}

AttentionOutput AttentionOpsTest::Run(const AttentionProblem& p, const AttentionBatch& batch,
                                      const AttentionRun& run) {
  const DType act = p.shape.act;
  const int64_t rows = batch.num_rows();
  const std::vector<float> queries(p.q.begin() + batch.first_row * p.row(),
                                   p.q.begin() + (batch.first_row + rows) * p.row());
  const DeviceArray pool = ToDevice(p.pool);
  const DeviceArray q = ToDeviceAs(act, queries);
  const DeviceArray out = NewOutput(rows * p.row(), act);
  const DeviceArray lse = NewOutput(rows * p.num_heads());
  const DeviceArray mass = NewOutput(batch.num_sequences() * p.shape.kv_heads * run.mass_blocks);
  AttentionArgs args = HostArgs(p, batch);
  args.q = Tensor(q, {rows, p.num_heads(), p.shape.head_dim}, act);
  args.pool = p.Pool(pool.data());
  args.layer = run.layer;
  args.out = Tensor(out, {rows, p.num_heads(), p.shape.head_dim}, act);
  args.splits = run.splits;
  if (run.lse) args.lse = Tensor(lse, {rows, p.num_heads()});
  if (run.mass_blocks > 0) {
    args.block_mass = Tensor(mass, {batch.num_sequences(), p.shape.kv_heads, run.mass_blocks});
  }
  const std::unique_ptr<StepStaging> staging = StepStaging::Create(device(), 1 << 20).value();
  EXPECT_TRUE(staging->Begin().ok());
  if (run.staged) {
    const auto stage = [&](StagedSpan<int32_t>& array) { array = staging->Add(array.host()); };
    stage(args.query_starts);
    stage(args.context_lens);
    stage(args.block_tables.ids);
    stage(args.block_tables.starts);
  }
  const bool prefill = run.op == AttentionOp::kPrefill;
  if (run.planned && prefill) args.plan = ops().PlanPrefill(args, *staging).value();
  EXPECT_TRUE(staging->Upload(stream()).ok());
  if (run.planned && !prefill) args.plan = ops().PlanDecode(stream(), args).value();
  const absl::Status status =
      prefill ? ops().AttentionPrefill(stream(), args) : ops().AttentionDecode(stream(), args);
  EXPECT_TRUE(status.ok()) << status;
  return {out.Floats(act), run.lse ? lse.Download<float>() : std::vector<float>(),
          mass.Download<float>()};
}

AttentionArgs AttentionOpsTest::HostArgs(const AttentionProblem& p, const AttentionBatch& batch) {
  return {.q = Tensor(p.q, {batch.num_rows(), p.num_heads(), p.shape.head_dim}),
          .pool = p.Pool(p.pool.data()),
          .layer = p.kLayer,
          .query_starts = batch.query_starts,
          .context_lens = batch.context_lens,
          .block_tables = {batch.block_ids, batch.table_starts},
          .scale = Scale(p.shape),
          .window = p.shape.window,
          .softcap = p.shape.softcap};
}

reference::AttentionResult AttentionOpsTest::Expected(const AttentionProblem& p,
                                                      int64_t mass_blocks) {
  const AttentionBatch batch = Whole(p);
  AttentionArgs args = HostArgs(p, batch);
  if (mass_blocks > 0) {
    args.block_mass =
        TensorView(nullptr, DType::kF32, {batch.num_sequences(), p.shape.kv_heads, mass_blocks});
  }
  return reference::Attention(args);
}

void AttentionOpsTest::ExpectOutput(const AttentionProblem& p, std::span<const float> out,
                                    const std::vector<double>& expected, double f32_bound) {
  const double bound =
      std::max(Bound(f32_bound, ProductType(p.shape.dtype)), Bound(f32_bound, p.shape.act));
  EXPECT_LT(RelativeError(out, expected), bound);
  const auto row = static_cast<size_t>(p.shape.head_dim);
  EXPECT_LT(WorstRow(out, expected, row), 6 * bound);
  // 2.5e-2 of bf16, as its 4e-3 of the whole.
  EXPECT_LT(WorstElement(out, expected, row), 6.25 * bound);
}

double AttentionOpsTest::LseBound(DType stored) const {
  if (!GetParam().on_cpu()) return 2e-4;
  return ProductType(stored) == DType::kF32 ? 5e-5 : 3e-2;
}

void AttentionOpsTest::ExpectRight(const AttentionProblem& p, double f32_bound) {
  const reference::AttentionResult expected = Expected(p);
  const double lse_bound = LseBound(p.shape.dtype);
  const auto expect = [&](AttentionOp op) {
    const AttentionOutput actual = Run(p, Whole(p), {.op = op, .lse = true});
    ExpectOutput(p, actual.out, expected.out, f32_bound);
    for (size_t i = 0; i < expected.lse.size(); ++i) {
      if (std::isinf(expected.lse[i])) {
        ASSERT_EQ(actual.lse[i], expected.lse[i]) << "lse of row and head " << i;
      } else {
        ASSERT_NEAR(actual.lse[i], expected.lse[i], lse_bound) << "of row and head " << i;
      }
    }
  };
  const auto has = [&](auto predicate) {
    return std::any_of(p.sequences.begin(), p.sequences.end(), predicate);
  };
  if (!has([](const AttentionSequence& s) { return s.context < s.q_len; }))
    expect(AttentionOp::kPrefill);
  if (!has([](const AttentionSequence& s) { return s.q_len != 1; })) expect(AttentionOp::kDecode);
}

std::vector<OpsSetup> AttentionSetups() {
  std::vector<OpsSetup> setups = AllOpsSetups();
  std::ranges::move(CpuOpsSetups("cpu-bf16"), std::back_inserter(setups));
  return setups;
}

int64_t AttentionOpsTest::MaxBlocks(const AttentionProblem& p) {
  size_t most = 0;
  for (const std::vector<int32_t>& table : p.tables) most = std::max(most, table.size());
  return static_cast<int64_t>(most);
}

}  // namespace tandem
