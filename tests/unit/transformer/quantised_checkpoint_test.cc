// Checkpoints whose weights are 8-bit codes with scales: they give the logits of the floats that they
// stand for, and what does not fit is refused by name.

#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "gtest/gtest.h"
#include "tests/unit/transformer/weights_fixture.h"

namespace tandem::quantised_checkpoint_test {
namespace {

// How many scales a tensor of codes has.
enum class Scales { kOne, kPerOutput, kPerGroup, kPerBlock };
// Of kPerBlock. The last block of 64 outputs has fewer.
constexpr int64_t kBlockOutputs = 48;
constexpr int64_t kBlockInputs = 32;

struct Quantisation {
  std::string codes = "I8";  // or "F8_E4M3"
  Scales scales = Scales::kPerOutput;
  std::string scale_type = "F32";
  bool dequantise = false;  // the products of codes and scales instead of these
};

// A float of four bits of exponent and three of fraction, whose NaN has all of them.
float NumberOfF8(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int fraction = code & 7;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -9)
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return code >> 7 != 0 ? -magnitude : magnitude;
}

class QuantisedCheckpointTest : public WeightsTest {
 protected:
  // Replaces the weights of all layers by codes with scales, as compressed-tensors and fp8
  // checkpoints have them, or by what these stand for.
  void Quantise(const Quantisation& to) {
    tensors_.clear();
    Read("llama2");
    const std::map<std::string, Tensor> stored = tensors_;
    for (const auto& [name, tensor] : stored) {
      if (name.ends_with("_proj.weight")) QuantiseTensor(to, name);
    }
    if (!to.dequantise) config_["quantization_config"] = Config(to);
  }

  void QuantiseTensor(const Quantisation& to, const std::string& name) {
    const std::vector<int64_t> shape = tensors_[name].shape;
    const int64_t rows = shape[0], k = shape[1];
    int64_t block_rows = 1, block_k = k;
    if (to.scales == Scales::kOne) block_rows = rows;
    if (to.scales == Scales::kPerGroup) block_k = 32;
    if (to.scales == Scales::kPerBlock) block_rows = kBlockOutputs, block_k = kBlockInputs;
    const int64_t scale_rows = (rows + block_rows - 1) / block_rows, columns = k / block_k;
    std::vector<float> values;
    std::string codes, scale_bytes, products;
    for (int64_t i = 0; i < scale_rows * columns; ++i) {
      values.push_back(static_cast<float>(1 + i % 5) / 4096);  // exact in every type
      scale_bytes += Bytes(to.scale_type, values.back());
    }
    for (int64_t i = 0; i < rows * k; ++i) {
      auto code = static_cast<uint8_t>(i * 37 % 256);
      const bool is_f8 = to.codes == "F8_E4M3";
      if (is_f8 && code % 128 == 127) code -= 1;  // no NaN
      codes.push_back(static_cast<char>(code));
      const float number = is_f8 ? NumberOfF8(code) : static_cast<float>(static_cast<int8_t>(code));
      products += Bytes("F32", number * values[i / k / block_rows * columns + i % k / block_k]);
    }
    if (to.dequantise) {
      tensors_[name] = {"F32", shape, products};
      return;
    }
    tensors_[name] = {to.codes, shape, codes};
    const std::vector<int64_t> scale_shape = to.scales == Scales::kOne
                                                 ? std::vector<int64_t>{1}
                                                 : std::vector<int64_t>{scale_rows, columns};
    const std::string suffix = to.scales == Scales::kPerBlock ? "_scale_inv" : "_scale";
    tensors_[name + suffix] = {to.scale_type, scale_shape, scale_bytes};
  }

  static nlohmann::json Config(const Quantisation& of) {
    if (of.scales == Scales::kPerBlock) {
      return {{"quant_method", "fp8"}, {"weight_block_size", {kBlockOutputs, kBlockInputs}}};
    }
    auto config = ParseJson(R"({
      "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
      "kv_cache_scheme": null, "quantization_status": "compressed",
      "config_groups": {"group_0": {
        "targets": ["Linear"], "output_activations": null,
        "input_activations": {"num_bits": 8, "type": "int", "dynamic": true, "strategy": "token"},
        "weights": {"num_bits": 8, "type": "int", "symmetric": true, "dynamic": false,
                    "strategy": "channel", "group_size": null, "actorder": null}}}})");
    if (of.codes == "F8_E4M3") {
      config["format"] = "float-quantized";
      config["config_groups"]["group_0"]["weights"]["type"] = "float";
    }
    return config;
  }

  static std::string Bytes(const std::string& type, float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const std::string all(reinterpret_cast<const char*>(&bits), sizeof(bits));
    return type == "F32" ? all : all.substr(2);  // BF16 is the upper half
  }
};

TEST_F(QuantisedCheckpointTest, GivesTheLogitsOfTheFloatsThatItStandsFor) {
  const std::pair<std::string, Scales> cases[] = {
      {"I8", Scales::kOne},      {"I8", Scales::kPerOutput},      {"I8", Scales::kPerGroup},
      {"F8_E4M3", Scales::kOne}, {"F8_E4M3", Scales::kPerOutput}, {"F8_E4M3", Scales::kPerBlock}};
  for (const auto& [codes, scales] : cases) {
    Quantise({.codes = codes, .scales = scales, .dequantise = true});
    Write();
    const std::vector<float> expected = Logits(directory_.path());
    for (const char* type : {"BF16", "F32"}) {
      Quantise({.codes = codes, .scales = scales, .scale_type = type});
      Write();
      EXPECT_EQ(Logits(directory_.path()), expected)
          << codes << " " << static_cast<int>(scales) << " " << type;
    }
  }
}

TEST_F(QuantisedCheckpointTest, ItsScalesAreRefusedByNameWhereTheyDoNotFit) {
  const std::string name = "model.layers.1.mlp.down_proj.weight_scale";
  Quantise({});
  tensors_.erase(name);
  ExpectRefused(absl::StatusCode::kNotFound, name);
  for (const float bad : {std::nanf(""), -1.0f, HUGE_VALF}) {
    Quantise({});
    tensors_[name].bytes.replace(20, 4, Bytes("F32", bad));
    ExpectRefused(absl::StatusCode::kInvalidArgument, name + " has ");
  }
  Quantise({});
  tensors_[name] = {
      "F32", {64, 2}, std::string(64 * 2 * 4, 0)};  // 96 inputs are no two groups of 32
  ExpectRefused(absl::StatusCode::kInvalidArgument, name + " is f32 [64, 2], must be");
  tensors_[name] = {"F32", {63, 1}, std::string(63 * 4, 0)};
  ExpectRefused(absl::StatusCode::kInvalidArgument, "must be floats for [64, 96] weights");
  Quantise({});
  config_.erase("quantization_config");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "has no quantization_config");
  Quantise({});
  tensors_["model.layers.0.mlp.up_proj.weight"] = {"F32", {96, 64}, std::string(96 * 64 * 4, 0)};
  ExpectRefused(absl::StatusCode::kInvalidArgument, "must have one dtype");
}

TEST_F(QuantisedCheckpointTest, BlocksOfFp8AreRefusedByNameWhereTheyDoNotFit) {
  const Quantisation blocks{.codes = "F8_E4M3", .scales = Scales::kPerBlock};
  const std::string name = "model.layers.1.mlp.down_proj.weight_scale_inv";
  Quantise(blocks);
  config_["quantization_config"]["weight_block_size"] = {64, 32};
  ExpectRefused(absl::StatusCode::kInvalidArgument, "in blocks of [64, 32]");
  Quantise(blocks);
  config_["quantization_config"]["weight_block_size"] = {48,
                                                         16};  // half a group of the packed weight
  ExpectRefused(absl::StatusCode::kInvalidArgument, "whose inputs are a multiple of 32");
  Quantise(blocks);
  tensors_[name].bytes.replace(4, 4, Bytes("F32", -0.5f));
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                name + " has -0.5 at place 1, must be from 0 to");
  Quantise(blocks);
  tensors_["model.layers.1.mlp.down_proj.weight"].bytes[96 * 33] = 127;
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "row 33 of the weight has a value that is infinite or no number");
  Quantise(blocks);
  config_["quantization_config"] = Config({.codes = "I8"});
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "is f8e4m3, but quantization_config of config.json says i8");
}

// Scales for inputs that are known beforehand are not needed where activations stay floats.
TEST_F(QuantisedCheckpointTest, ScalesOfInputsAreLeftOutWhereTheConfigHasThem) {
  const Quantisation f8{.codes = "F8_E4M3", .scales = Scales::kOne};
  Quantise(f8);
  Write();
  const std::vector<float> expected = Logits(directory_.path());
  Quantise(f8);
  tensors_["model.layers.0.mlp.down_proj.input_scale"] = {"F32", {1}, Bytes("F32", 0.25f)};
  ExpectRefused(absl::StatusCode::kInvalidArgument, "input_scale belongs to no part");
  config_["quantization_config"]["config_groups"]["group_0"]["input_activations"]["dynamic"] =
      false;
  Write();
  EXPECT_EQ(Logits(directory_.path()), expected);
}

}  // namespace
}  // namespace tandem::quantised_checkpoint_test
