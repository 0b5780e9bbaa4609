#include "security/tls_refusals.h"

#include "gtest/gtest.h"

namespace tandem::tls_refusals_test {
namespace {

TEST(TlsRefusalsTest, CountsByPortAndReason) {
  TlsRefusals refusals;
  EXPECT_TRUE(refusals.counts().empty());
  refusals.Add(TlsPort::kHttp, TlsRefusalReason::kHandshake, "a");
  refusals.Add(TlsPort::kGrpc, TlsRefusalReason::kNoCertificate, "b");
  refusals.Add(TlsPort::kHttp, TlsRefusalReason::kHandshake, "c");
  const auto counts = refusals.counts();
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(Name(counts[0].port), "grpc");
  EXPECT_EQ(Name(counts[0].reason), "no_certificate");
  EXPECT_EQ(counts[0].refused, 1u);
  EXPECT_EQ(Name(counts[1].port), "http");
  EXPECT_EQ(Name(counts[1].reason), "handshake");
  EXPECT_EQ(counts[1].refused, 2u);
}

}  // namespace
}  // namespace tandem::tls_refusals_test
