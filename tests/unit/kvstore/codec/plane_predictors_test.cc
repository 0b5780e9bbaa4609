#include "kvstore/codec/plane_predictors.h"

#include <cstdint>
#include <utility>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/codec/plane_data.h"

namespace tandem::codec::plane_predictors_test {
namespace {

using plane_data::Plane;
using plane_data::RandomPlane;

Plane Predicted(Predictor predictor, const PlaneShape& shape, Plane plane) {
  Predict(predictor, shape, plane);
  return plane;
}

TEST(PlanePredictorsTest, EachInvertsItself) {
  for (const PlaneShape& shape : {PlaneShape{1, 1, 1}, PlaneShape{1, 1, 8}, PlaneShape{3, 5, 16},
                                  PlaneShape{2, 7, 9}, PlaneShape{4, 1, 3}, PlaneShape{2, 6, 1}}) {
    const Plane plane = RandomPlane(shape.Bytes(), shape.Bytes());
    for (uint8_t i = 0; i < kNumPredictors; ++i) {
      Plane back = Predicted(Predictor{i}, shape, plane);
      Restore(Predictor{i}, shape, back);
      EXPECT_EQ(back, plane) << int{i} << " at " << shape.head_dim;
    }
  }
}

// Two heads of two tokens of three channels.
TEST(PlanePredictorsTest, EachTakesOffWhatItSays) {
  constexpr PlaneShape kShape = {2, 2, 3};
  const Plane plane = {10, 13, 11, 12, 12, 255, 1, 2, 3, 5, 7, 9};
  EXPECT_EQ(Predicted(Predictor::kRaw, kShape, plane), plane);
  EXPECT_EQ(Predicted(Predictor::kDelta, kShape, plane),
            (Plane{10, 3, 254, 1, 0, 243, 2, 1, 1, 2, 2, 2}));
  EXPECT_EQ(Predicted(Predictor::kXor, kShape, plane),
            (Plane{10, 7, 6, 7, 0, 243, 254, 3, 1, 6, 2, 14}));
  EXPECT_EQ(Predicted(Predictor::kTokenDelta, kShape, plane),
            (Plane{10, 13, 11, 2, 255, 244, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Predicted(Predictor::kTokenXor, kShape, plane),
            (Plane{10, 13, 11, 6, 1, 244, 1, 2, 3, 4, 5, 10}));
  EXPECT_EQ(Predicted(Predictor::kPairDelta, kShape, plane),
            (Plane{10, 3, 11, 12, 0, 255, 1, 1, 3, 5, 2, 9}));
  EXPECT_EQ(Predicted(Predictor::kPairDeltaTokenDelta, kShape, plane),
            (Plane{10, 3, 11, 2, 253, 244, 1, 1, 3, 4, 1, 6}));
}

}  // namespace
}  // namespace tandem::codec::plane_predictors_test
