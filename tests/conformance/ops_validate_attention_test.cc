#include <cstdint>
#include <vector>

#include "tests/conformance/validate_fixture.h"

// Every argument that attention must refuse is refused by its name, and so for the masses that it
// reports.

namespace tandem::ops_validate_attention_test {
namespace {

using ops_validate::kNaN;
using ops_validate::ValidateTest;

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

TANDEM_INSTANTIATE_OPS_TEST(ValidateAttentionTest);

}  // namespace
}  // namespace tandem::ops_validate_attention_test
