# Tests of transfer.
tandem_library(test_transports
  SOURCES support/loopback_transport.cc support/tcp_transport.cc
  DEPS tandem_transfer)

tandem_test_program(transfer_unit_tests
  DEPS tandem_test_transports tandem_transfer tandem_kernels
  SUPPORT support/channel_pair.cc support/faulty_medium.cc support/frame_faults.cc support/frame_proxy.cc
          support/payload_memory.cc support/side_channel_medium.cc support/test_certificates.cc
          support/transport_probe.cc)
tandem_test(transfer_test
  SOURCES unit/transfer/frame_test.cc unit/transfer/frame_reader_test.cc
          unit/transfer/link_meter_test.cc
          unit/transfer/nccl_setup_test.cc unit/transfer/peer_streams_test.cc
          unit/transfer/streams_test.cc
          unit/transfer/tcp_transport_test.cc
  IN transfer_unit_tests)
foreach(name corruption frame_proxy side_channel transfer_memory unauthenticated_peers)
  tandem_test(${name}_test SOURCES unit/transfer/${name}_test.cc IN transfer_unit_tests)
endforeach()
# AddressSanitizer keeps what was freed, which the test would take for what is left behind.
set_tests_properties(transfer_memory_test PROPERTIES ENVIRONMENT
  "ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=1:thread_local_quarantine_size_kb=64")
tandem_test(tls_test
  SOURCES unit/transfer/tls_test.cc unit/transfer/tls_transport_test.cc IN transfer_unit_tests)
tandem_test(fabric_test
  SOURCES unit/transfer/fabric_test.cc unit/transfer/link_selector_test.cc
          unit/transfer/peer_table_test.cc unit/transfer/probe_test.cc
  IN transfer_unit_tests)
tandem_test(staging_test
  SOURCES unit/transfer/staged_transport_test.cc unit/transfer/staging_test.cc IN transfer_unit_tests)
tandem_test(ipc_test
  SOURCES unit/transfer/memory_greeting_refusal_test.cc unit/transfer/memory_greeting_test.cc
          unit/transfer/ipc_medium_test.cc unit/transfer/ipc_peer_loss_test.cc
  IN transfer_unit_tests)
tandem_test(shm_test
  SOURCES unit/transfer/shm_area_test.cc unit/transfer/shm_medium_test.cc IN transfer_unit_tests)

# Payloads in the memory of the host, and of the device that TANDEM_TEST_DEVICE names.
set(TRANSPORT_CONFORMANCE_TEST
    conformance/transport_delivery_test.cc conformance/transport_ending_test.cc
    conformance/transport_recovery_test.cc conformance/transport_refusal_test.cc
    support/faulty_medium.cc support/frame_faults.cc support/payload_memory.cc
    support/test_certificates.cc support/transport_probe.cc)
tandem_test(transport_conformance_test
  SOURCES ${TRANSPORT_CONFORMANCE_TEST}
  DEPS tandem_test_transports tandem_transfer_nccl tandem_transfer tandem_kernels
  ARGS --gtest_filter=-*/nccl*
  LABELS conformance)
tandem_emulated_test(transport_conformance_emulated_test
  SOURCES ${TRANSPORT_CONFORMANCE_TEST}
  DEPS tandem_test_transports tandem_transfer_nccl_emulated tandem_transfer tandem_kernels
  ARGS --gtest_filter=*/ipc*:*/nccl*:*/shm*:*/tcp*
  LABELS conformance TIMEOUT 600)
set_tests_properties(transport_conformance_emulated_test PROPERTIES
                     ENVIRONMENT TANDEM_TEST_DEVICE=cuda:0)
tandem_fuzz_test(frame_fuzz
  SOURCES fuzz/frame_fuzz.cc
  CORPUS fuzz/corpus/frame
  DEPS tandem_transfer)
tandem_fuzz_test(outbound_fuzz
  SOURCES fuzz/outbound_fuzz.cc
  CORPUS fuzz/corpus/outbound
  DEPS tandem_transfer)
tandem_fuzz_test(payload_handle_fuzz
  SOURCES fuzz/payload_handle_fuzz.cc
  CORPUS fuzz/corpus/payload_handle
  DEPS tandem_transfer tandem_kernels)
tandem_fuzz_test(address_fuzz
  SOURCES fuzz/address_fuzz.cc
  CORPUS fuzz/corpus/address
  DEPS tandem_transfer)
set(MEDIUM_CONFORMANCE_TEST
    conformance/medium_test.cc support/channel_pair.cc support/test_certificates.cc)
tandem_test(medium_conformance_test
  SOURCES ${MEDIUM_CONFORMANCE_TEST}
  DEPS tandem_test_transports tandem_transfer_nccl tandem_transfer tandem_kernels
  ARGS --gtest_filter=-*/nccl
  LABELS conformance)
tandem_emulated_test(medium_conformance_emulated_test
  SOURCES ${MEDIUM_CONFORMANCE_TEST}
  DEPS tandem_test_transports tandem_transfer_nccl_emulated tandem_transfer tandem_kernels
  ARGS --gtest_filter=*/nccl
  LABELS conformance)
set_tests_properties(medium_conformance_emulated_test PROPERTIES
                     ENVIRONMENT TANDEM_TEST_DEVICE=cuda:0)
tandem_fuzz_test(memory_greeting_fuzz
  SOURCES fuzz/memory_greeting_fuzz.cc
  CORPUS fuzz/corpus/memory_greeting
  DEPS tandem_transfer)

# NCCL on the emulated GPU, with the stand-in for the library.
function(tandem_nccl_test name)
  tandem_emulated_test(${name}
    SOURCES ${ARGN} support/channel_pair.cc support/payload_memory.cc
    DEPS tandem_transfer_nccl_emulated tandem_transfer tandem_kernels
    TIMEOUT 300)
  target_compile_definitions(${name} PRIVATE TANDEM_NCCL_NAME="$<TARGET_FILE:tandem_fake_nccl>")
endfunction()
tandem_nccl_test(nccl_test unit/transfer/nccl_fault_test.cc unit/transfer/nccl_test.cc)
tandem_nccl_test(nccl_peer_test unit/transfer/nccl_peer_test.cc)
tandem_fuzz_test(nccl_setup_fuzz
  SOURCES fuzz/nccl_setup_fuzz.cc
  CORPUS fuzz/corpus/nccl_setup
  DEPS tandem_transfer)
