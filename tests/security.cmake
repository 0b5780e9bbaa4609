# Tests of security; those of its ports are with transfer, and with server.
tandem_test(security_test
  SOURCES unit/security/certificate_test.cc unit/security/identity_test.cc
          unit/security/peer_check_test.cc unit/security/tls_files_test.cc
          unit/security/tls_refusals_test.cc unit/security/tls_source_test.cc
          support/test_certificates.cc
  DEPS tandem_security
  LABELS unit)
if(TANDEM_GRPC)
  tandem_test(grpc_tls_test
    SOURCES unit/security/grpc_tls_test.cc support/test_certificates.cc
    DEPS tandem_server)
endif()
