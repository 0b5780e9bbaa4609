# Tests of transformer.
tandem_test(transformer_test
  SOURCES unit/transformer/forward_test.cc unit/transformer/resident_weights_test.cc
          unit/transformer/sampler_test.cc unit/transformer/weights_test.cc
          unit/transformer/model_under_test.cc
  DEPS tandem_transformer nlohmann_json::nlohmann_json
  LABELS unit)
tandem_test(model_golden_test
  SOURCES unit/transformer/golden_logits_test.cc unit/transformer/invariance_test.cc
          unit/transformer/model_under_test.cc
  DEPS tandem_transformer nlohmann_json::nlohmann_json
  LABELS golden TIMEOUT 600)
