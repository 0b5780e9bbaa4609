#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/conformance/coded_weights_fixture.h"

// Weights that are floats of 8 bits in the checkpoint, with scales: that they are kept as they are,
// that the embedding has exactly their values, and that products are those of these values.

namespace tandem::ops_f8_weights_test {
namespace {

using coded_weights::Int8WeightsTest;
using coded_weights::QuantisedWeight;
using coded_weights::RoundToBf16;
using coded_weights::Setups;
using testing::AllOf;
using testing::HasSubstr;

// Codes that are floats of 8 bits, as a checkpoint has them with their scales.
class F8WeightsTest : public Int8WeightsTest {
 protected:
  F8WeightsTest() { format_ = WeightFormat::F8E4M3(); }

  // Every code that is a number, and scales that a bf16 has.
  QuantisedWeight RandomCodes(int64_t n, int64_t k) {
    QuantisedWeight w{.dtype = DType::kF8E4M3, .n = n, .k = k};
    const int64_t groups = (k + 31) / 32;
    for (int64_t i = 0; i < n * groups; ++i) {
      w.scales.push_back(RoundToBf16(0.01f + std::abs(Random(1)[0])));
    }
    for (int64_t i = 0; i < n * k; ++i) {
      auto code = static_cast<uint8_t>(i * 101 + i / 256);
      if (code % 128 == 127) code -= 1;
      w.rows.push_back(static_cast<std::byte>(code));
      const auto number = static_cast<float>(reference::Load(DType::kF8E4M3, w.rows.data(), i));
      w.codes.push_back(number);
      w.quantised.push_back(number * w.scales[static_cast<size_t>(i / k * groups + i % k / 32)]);
    }
    return w;
  }

  absl::Status PackCodes(const DeviceArray& packed, const QuantisedWeight& w) {
    const DeviceArray rows = ToDevice(w.rows);
    const DeviceArray scales = ToDevice(w.scales);
    const TensorView sources[] = {TensorView(rows.data(), w.dtype, {w.n, w.k})};
    return ops().PackWeight(stream(), Matrix(w, packed), sources,
                            Tensor(scales, {w.n, (w.k + 31) / 32}));
  }
};

TEST_P(F8WeightsTest, ProductsAreThoseOfCodesAndScales) {
  for (int64_t n : {1, 32, 97}) {
    for (int64_t k : {1, 31, 33, 320}) {
      const QuantisedWeight w = RandomCodes(n, k);
      const DeviceArray packed = NewPacked(n, k);
      ASSERT_TRUE(PackCodes(packed, w).ok());
      for (int64_t num_rows : {1, 3, 4, 12, 50}) {
        SCOPED_TRACE(fmt::format("n {} k {} rows {}", n, k, num_rows));
        const std::vector<float> x = Random(num_rows * k);
        ExpectProducts(Multiply(x, w, packed), x, w);
      }
    }
  }
}

TEST_P(F8WeightsTest, TakesEveryActivation) {
  for (const DType act : ActivationTypes()) {
    if (act == DType::kF32) continue;
    for (const int64_t k : {40, 256}) {
      const QuantisedWeight w = RandomCodes(40, k);
      const DeviceArray packed = NewPacked(40, k);
      ASSERT_TRUE(PackCodes(packed, w).ok());
      for (const int64_t num_rows : {1, 8, 9}) ExpectProductsOf(act, num_rows, w, packed);
    }
  }
}

// More than a GPU widens at once.
TEST_P(F8WeightsTest, TakesALargeMatrix) {
  const QuantisedWeight w = RandomCodes(1100, 8192);
  const DeviceArray packed = NewPacked(w.n, w.k);
  ASSERT_TRUE(PackCodes(packed, w).ok());
  ExpectProductsOf(DType::kF32, 9, w, packed);
}

TEST_P(F8WeightsTest, TheEmbeddingHasTheSameValues) {
  const QuantisedWeight w = RandomCodes(40, 100);
  const DeviceArray packed = NewPacked(40, 100);
  ASSERT_TRUE(PackCodes(packed, w).ok());
  const std::vector<int32_t> ids = {39, 0, 33};
  const DeviceArray out = NewOutput(3 * 100);
  ASSERT_TRUE(ops().Embedding(stream(), {ids, Matrix(w, packed), Tensor(out, {3, 100})}).ok());
  std::vector<float> expected;
  for (int32_t id : ids) {
    const auto row = w.quantised.begin() + id * 100;
    expected.insert(expected.end(), row, row + 100);
  }
  EXPECT_TRUE(BitwiseEqual(out.Download<float>(), std::span<const float>(expected)));
}

TEST_P(F8WeightsTest, ACodeThatIsNoNumberIsRefusedWithItsRow) {
  for (const int bad : {0x7f, 0xff}) {
    QuantisedWeight w = RandomCodes(40, 50);
    w.rows[35 * 50 + 49] = static_cast<std::byte>(bad);
    const absl::Status status = PackCodes(NewPacked(40, 50), w);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("row 35"), HasSubstr("no number")));
  }
}

TEST_P(F8WeightsTest, TakesNoFloatsAndNoCodesWithoutScales) {
  const QuantisedWeight floats = RandomWeight(DType::kBF16, 8, 32);
  EXPECT_THAT(std::string(PackCodes(NewPacked(8, 32), floats).message()),
              HasSubstr("sources[0] is bf16"));
  const QuantisedWeight codes = RandomCodes(8, 32);
  EXPECT_THAT(std::string(PackInto(NewPacked(8, 32), codes).message()), HasSubstr("scales"));
}

TANDEM_INSTANTIATE_OPS_TEST_ON(F8WeightsTest, Setups(AllOpsSetups()));

}  // namespace
}  // namespace tandem::ops_f8_weights_test
