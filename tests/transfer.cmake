# Tests of transfer.
tandem_test(transport_conformance_test
  SOURCES conformance/transport_test.cc support/transport_probe.cc
  DEPS tandem_transfer)
