# Tests of base.
tandem_test(thread_pool_test SOURCES unit/base/thread_pool_test.cc DEPS tandem_base)
