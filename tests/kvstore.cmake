# Tests of kvstore.
tandem_test(kvstore_test
  SOURCES unit/kvstore/block_pool_test.cc unit/kvstore/block_table_test.cc
          unit/kvstore/copier_test.cc unit/kvstore/eviction_policy_test.cc
          unit/kvstore/expectations_test.cc unit/kvstore/host_pool_test.cc
          unit/kvstore/kv_convert_test.cc unit/kvstore/kv_dump_test.cc
          unit/kvstore/kv_layout_test.cc unit/kvstore/kv_store_test.cc
          unit/kvstore/prefix_cache_test.cc unit/kvstore/prefix_journal_test.cc
          unit/kvstore/prefix_key_test.cc unit/kvstore/select_tokens_test.cc
          unit/kvstore/store_block_test.cc unit/kvstore/store_encoder_test.cc
  DEPS tandem_kvstore)
tandem_test(kv_codec_test
  SOURCES unit/kvstore/codec/byte_plane_legacy_test.cc unit/kvstore/codec/byte_plane_test.cc
          unit/kvstore/codec/codec_tables_test.cc unit/kvstore/codec/frame_decoder_test.cc
          unit/kvstore/codec/frame_parts_test.cc unit/kvstore/codec/half_scale_test.cc unit/kvstore/codec/kv_codec_test.cc
          unit/kvstore/codec/packed_extent_test.cc unit/kvstore/codec/plane_backends_test.cc
          unit/kvstore/codec/plane_predictors_test.cc unit/kvstore/codec/rounded_error_test.cc
          unit/kvstore/codec/rounded_refusals_test.cc unit/kvstore/codec/rounded_test.cc
  DEPS tandem_kv_codec hwy::hwy)
tandem_test(kvstore_property_test
  SOURCES property/kvstore_property_test.cc
  DEPS tandem_kvstore
  LABELS property
  TIMEOUT 300)
tandem_fuzz_test(store_block_fuzz
  SOURCES fuzz/store_block_fuzz.cc
  CORPUS fuzz/corpus/store_block
  DEPS tandem_kvstore)
tandem_fuzz_test(kv_dump_fuzz
  SOURCES fuzz/kv_dump_fuzz.cc
  CORPUS fuzz/corpus/kv_dump
  DEPS tandem_kvstore)
tandem_fuzz_test(kv_codec_fuzz
  SOURCES fuzz/kv_codec_fuzz.cc
  CORPUS fuzz/corpus/kv_codec
  DEPS tandem_kv_codec)

# What moves blocks, on the device that TANDEM_TEST_DEVICE names: a GPU, or the emulated one.
set(KVSTORE_DEVICE_TEST unit/kvstore/kv_store_host_codec_test.cc unit/kvstore/kv_store_host_test.cc
    unit/kvstore/kv_store_prefix_test.cc unit/kvstore/kv_store_swap_test.cc)
tandem_test(kvstore_device_test SOURCES ${KVSTORE_DEVICE_TEST} DEPS tandem_kvstore)
tandem_emulated_test(kvstore_emulated_test SOURCES ${KVSTORE_DEVICE_TEST} DEPS tandem_kvstore
                     TIMEOUT 300)
set_tests_properties(kvstore_emulated_test PROPERTIES ENVIRONMENT TANDEM_TEST_DEVICE=cuda:0)
