#include "kvstore/codec/plane_predictors.h"

namespace tandem::codec {
namespace {

uint8_t Sum(uint8_t left, uint8_t right) { return static_cast<uint8_t>(left + right); }
uint8_t Difference(uint8_t left, uint8_t right) { return static_cast<uint8_t>(left - right); }
uint8_t Xor(uint8_t left, uint8_t right) { return static_cast<uint8_t>(left ^ right); }

using Operation = uint8_t (*)(uint8_t, uint8_t);

// Replaces each byte by its difference from the byte `distance` before it. It goes from back to
// front, so that the guesses are still bytes of the plane.
template <Operation kOperation>
void TakeOff(size_t distance, std::span<uint8_t> bytes) {
  for (size_t i = bytes.size(); i-- > distance;) {
    bytes[i] = kOperation(bytes[i], bytes[i - distance]);
  }
}
// Undoes TakeOff. It goes from front to back, so that the guesses are restored already.
template <Operation kOperation>
void PutBack(size_t distance, std::span<uint8_t> bytes) {
  for (size_t i = distance; i < bytes.size(); ++i) {
    bytes[i] = kOperation(bytes[i], bytes[i - distance]);
  }
}

// Calls `function` with the tokens of each head: the first token of a head has no token before it.
template <typename Function>
void ForEachHead(const PlaneShape& shape, std::span<uint8_t> plane, Function function) {
  const size_t bytes = shape.tokens * shape.head_dim;
  for (size_t head = 0; head < shape.num_kv_heads; ++head) {
    function(plane.subspan(head * bytes, bytes));
  }
}

// Changes each odd channel by the even channel before it. The last channel of a row of odd length
// has no partner and is left as it is.
template <Operation kOperation>
void Pair(const PlaneShape& shape, std::span<uint8_t> plane) {
  for (size_t row = 0; row < plane.size(); row += shape.head_dim) {
    for (size_t i = row + 1; i < row + shape.head_dim; i += 2) {
      plane[i] = kOperation(plane[i], plane[i - 1]);
    }
  }
}

}  // namespace

void Predict(Predictor predictor, const PlaneShape& shape, std::span<uint8_t> plane) {
  switch (predictor) {
    case Predictor::kRaw:
      return;
    case Predictor::kDelta:
      return TakeOff<Difference>(1, plane);
    case Predictor::kXor:
      return TakeOff<Xor>(1, plane);
    case Predictor::kTokenDelta:
      return ForEachHead(shape, plane,
                         [&](auto head) { TakeOff<Difference>(shape.head_dim, head); });
    case Predictor::kTokenXor:
      return ForEachHead(shape, plane, [&](auto head) { TakeOff<Xor>(shape.head_dim, head); });
    case Predictor::kPairDelta:
      return Pair<Difference>(shape, plane);
    case Predictor::kPairDeltaTokenDelta:
      Pair<Difference>(shape, plane);
      return Predict(Predictor::kTokenDelta, shape, plane);
  }
}

void Restore(Predictor predictor, const PlaneShape& shape, std::span<uint8_t> plane) {
  switch (predictor) {
    case Predictor::kRaw:
      return;
    case Predictor::kDelta:
      return PutBack<Sum>(1, plane);
    case Predictor::kXor:
      return PutBack<Xor>(1, plane);
    case Predictor::kTokenDelta:
      return ForEachHead(shape, plane, [&](auto head) { PutBack<Sum>(shape.head_dim, head); });
    case Predictor::kTokenXor:
      return ForEachHead(shape, plane, [&](auto head) { PutBack<Xor>(shape.head_dim, head); });
    case Predictor::kPairDelta:
      return Pair<Sum>(shape, plane);
    case Predictor::kPairDeltaTokenDelta:
      Restore(Predictor::kTokenDelta, shape, plane);
      return Pair<Sum>(shape, plane);
  }
}

}  // namespace tandem::codec
