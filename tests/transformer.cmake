# Tests of transformer.
tandem_test(transformer_test
  SOURCES unit/transformer/attention_masses_test.cc unit/transformer/forward_test.cc
          unit/transformer/quantised_checkpoint_test.cc unit/transformer/resident_weights_test.cc
          unit/transformer/rope_table_test.cc unit/transformer/sampler_test.cc unit/transformer/weights_test.cc
          unit/transformer/model_under_test.cc
  DEPS tandem_transformer nlohmann_json::nlohmann_json
  LABELS unit)
tandem_test(model_golden_test
  SOURCES unit/transformer/golden_logits_test.cc unit/transformer/invariance_test.cc
          unit/transformer/model_under_test.cc
  DEPS tandem_transformer nlohmann_json::nlohmann_json
  LABELS golden TIMEOUT 600)

# A model on the device that TANDEM_TEST_DEVICE names: the CPU, a GPU, or the emulated one.
set(MODEL_DEVICE_TEST unit/transformer/device_model_test.cc unit/transformer/model_under_test.cc
    support/shallow_model.cc)
tandem_test(model_device_test
  SOURCES ${MODEL_DEVICE_TEST}
  DEPS tandem_transformer nlohmann_json::nlohmann_json
  LABELS golden TIMEOUT 600)
tandem_test_on(model_bf16_test cpu-bf16 TIMEOUT 600 COMMAND model_device_test)
tandem_emulated_test(model_emulated_test
  SOURCES ${MODEL_DEVICE_TEST}
  DEPS tandem_transformer nlohmann_json::nlohmann_json
  LABELS golden TIMEOUT 1200)
# A block of KV is 16 tokens, so that each output still begins another block.
set_tests_properties(model_emulated_test PROPERTIES ENVIRONMENT
                     "TANDEM_TEST_DEVICE=cuda:0;TANDEM_TEST_TOKENS=17")
tandem_long_test(model_emulated_long COMMAND model_emulated_test
                 ENVIRONMENT TANDEM_TEST_DEVICE=cuda:0)
