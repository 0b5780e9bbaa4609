# Tests of security; those of ports are with transfer and with server, which need gRPC.
tandem_test(security_test
  SOURCES unit/security/certificate_test.cc unit/security/identity_test.cc
          unit/security/peer_check_test.cc unit/security/tls_files_test.cc
          unit/security/tls_refusals_test.cc unit/security/tls_source_test.cc
          support/test_certificates.cc
  DEPS tandem_security
  LABELS unit)
tandem_fuzz_test(certificate_fuzz SOURCES fuzz/certificate_fuzz.cc DEPS tandem_security
  CORPUS fuzz/corpus/certificate)
