# Tests of kvstore.
tandem_test(kvstore_test
  SOURCES unit/kvstore/block_pool_test.cc unit/kvstore/block_table_test.cc
          unit/kvstore/kv_layout_test.cc unit/kvstore/kv_store_test.cc
          unit/kvstore/kv_store_host_test.cc unit/kvstore/kv_store_prefix_test.cc
          unit/kvstore/kv_store_swap_test.cc
  DEPS tandem_kvstore)
tandem_test(kvstore_property_test
  SOURCES property/kvstore_property_test.cc
  DEPS tandem_kvstore
  LABELS property)
