#include "engine/profile/measure_kv_sensitivity.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "kvstore/codec/codec_tables.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/rounded.h"

namespace tandem {
namespace {

// The step that KV is rounded to, in spreads of its values: coarse enough for the change to stand
// out from the noise of one text, fine enough for predictions not to fall apart.
constexpr float kStep = 0.7f;
// The first tokens of a prompt are never rounded on the way to a decode worker.
constexpr int32_t kExactFront = 4;
// A layer that changes nothing measurable still needs a positive number.
constexpr double kLeastSensitivity = 1e-7;

ExtentShape ShapeOf(const KvLayout& layout) {
  return {layout.dtype, layout.num_kv_heads, layout.head_dim, layout.block_tokens};
}

// Makes the codec's tables of the text's own KV, for layers that are all alike.
absl::StatusOr<std::unique_ptr<KvCodec>> CodecFor(ScoredText& text) {
  const ExtentShape shape = ShapeOf(text.layout());
  const int32_t num_layers = text.layout().num_layers;
  CodecCalibrator calibrator(shape, num_layers);
  std::vector<std::byte> kv(text.LayerBytes());
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    RETURN_IF_ERROR(text.ReadLayer(layer, kv));
    for (size_t at = 0; at < kv.size(); at += shape.Bytes()) {
      calibrator.Add(layer, std::span(kv).subspan(at, shape.Bytes()));
    }
  }
  auto codec = NewRoundedCodec(std::make_shared<const CodecTables>(calibrator.Build()), kStep);
  if (codec->Fits(shape, 0)) return codec;
  return Unimplemented("KV of type {} is never rounded on its way: there is nothing to measure",
                       Name(shape.dtype));
}

// What a decode worker would get of the KV of one layer. An extent that does not become smaller
// travels as it is.
std::vector<std::byte> Rounded(const KvCodec& codec, const ExtentShape& shape, int32_t layer,
                               std::span<const std::byte> kv) {
  std::vector<std::byte> rounded(kv.begin(), kv.end());
  std::vector<std::byte> payload(MostFrameBytes(shape));
  for (size_t at = 0; at < kv.size(); at += shape.Bytes()) {
    const ExtentPlace place = {.layer = layer, .exact_front = at == 0 ? kExactFront : 0};
    const std::optional<size_t> size =
        codec.Encode(shape, place, kv.subspan(at, shape.Bytes()), payload);
    if (!size) continue;
    const bool is_decoded = codec.Decode(shape, layer, std::span(payload).first(*size),
                                         std::span(rounded).subspan(at, shape.Bytes()));
    TANDEM_CHECK(is_decoded, "a codec does not read what it wrote");
  }
  return rounded;
}

// How much predictions change with one side of a layer rounded. The KV is afterwards as before.
absl::StatusOr<float> SensitivityOf(ScoredText& text, int32_t layer, KvSide side,
                                    std::span<const std::byte> exact,
                                    std::span<const std::byte> rounded) {
  RETURN_IF_ERROR(text.WriteSide(layer, side, rounded));
  ASSIGN_OR_RETURN(const double divergence, text.Divergence());
  RETURN_IF_ERROR(text.WriteSide(layer, side, exact));
  return static_cast<float>(std::max(divergence, kLeastSensitivity));
}

}  // namespace

absl::StatusOr<KvSensitivity> MeasureKvSensitivity(const ModelSource& source,
                                                   std::span<const int32_t> tokens,
                                                   const SensitivityProgress& progress) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ScoredText> text, ScoredText::Open(source, tokens));
  ASSIGN_OR_RETURN(const std::unique_ptr<KvCodec> codec, CodecFor(*text));
  const int32_t num_layers = text->layout().num_layers;
  std::vector<std::byte> exact(text->LayerBytes());
  KvSensitivity sensitivity;
  int64_t done = 0;
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    RETURN_IF_ERROR(text->ReadLayer(layer, exact));
    const std::vector<std::byte> rounded = Rounded(*codec, ShapeOf(text->layout()), layer, exact);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      ASSIGN_OR_RETURN(const float measured, SensitivityOf(*text, layer, side, exact, rounded));
      (side == KvSide::kKeys ? sensitivity.k : sensitivity.v).push_back(measured);
      progress(++done, 2 * int64_t{num_layers});
    }
  }
  return sensitivity;
}

}  // namespace tandem
