#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem::codec {

// The shape of a plane, which has the bytes of one significance of all elements of K or of V,
// [kv_head][token][head_dim].
struct PlaneShape {
  size_t num_kv_heads;
  size_t tokens;
  size_t head_dim;

  size_t Bytes() const { return num_kv_heads * tokens * head_dim; }
};

// What a byte of a plane is guessed to be: only its difference from the guess is kept, modulo 256.
// The values are bytes of frames. The first three are those of the earlier runtime, the others
// those that only its offline tool had.
enum class Predictor : uint8_t {
  kRaw = 0,
  kDelta = 1,       // delta_seq along head_dim, over the ends of rows: the byte before this one
  kXor = 2,         // xor_seq: the byte before this one; the difference is exclusive or
  kTokenDelta = 3,  // delta_seq along tokens: the byte of the same channel in the token before
  kTokenXor = 4,    // xor_seq along tokens: as kTokenDelta, by exclusive or
  kPairDelta = 5,   // odd channels: the channel before; even ones have no guess
  kPairDeltaTokenDelta = 6  // kTokenDelta of what kPairDelta leaves
};
inline constexpr uint8_t kNumRuntimePredictors = 1 + static_cast<uint8_t>(Predictor::kXor);
inline constexpr uint8_t kNumPredictors = 1 + static_cast<uint8_t>(Predictor::kPairDeltaTokenDelta);

// Predict replaces a plane by its differences from the guesses, and Restore replaces the
// differences by the plane. `plane` has shape.Bytes() bytes.
void Predict(Predictor predictor, const PlaneShape& shape, std::span<uint8_t> plane);
void Restore(Predictor predictor, const PlaneShape& shape, std::span<uint8_t> plane);

}  // namespace tandem::codec
