# Tests of checkpoint.
tandem_test(checkpoint_test
  SOURCES unit/checkpoint/checkpoint_test.cc unit/checkpoint/model_config_refusals_test.cc
          unit/checkpoint/model_config_test.cc unit/checkpoint/quantization_config_test.cc
          unit/checkpoint/rope_test.cc unit/checkpoint/safetensors_test.cc
  DEPS tandem_checkpoint
  LABELS unit)
tandem_fuzz_test(safetensors_fuzz SOURCES fuzz/safetensors_fuzz.cc DEPS tandem_checkpoint
  CORPUS fuzz/corpus/safetensors)
tandem_fuzz_test(model_config_fuzz SOURCES fuzz/model_config_fuzz.cc DEPS tandem_checkpoint
  CORPUS fuzz/corpus/model_config)
tandem_fuzz_test(shard_index_fuzz SOURCES fuzz/shard_index_fuzz.cc DEPS tandem_checkpoint
  CORPUS fuzz/corpus/shard_index)
tandem_fuzz_test(generation_config_fuzz SOURCES fuzz/generation_config_fuzz.cc
  DEPS tandem_checkpoint CORPUS fuzz/corpus/generation_config)
