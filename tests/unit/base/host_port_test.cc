#include "base/host_port.h"

#include "gtest/gtest.h"

namespace tandem::host_port_test {
namespace {

TEST(HostPortTest, IsReadAsItIsWritten) {
  for (const char* host : {"::1", "10.0.0.1", "worker-3.decode"}) {
    const absl::StatusOr<HostPort> read = ParseHostPort(HostPortText(host, 80));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->host, host);
    EXPECT_EQ(read->port, "80");
  }
  EXPECT_EQ(HostPortText("::1", 80), "[::1]:80");
}

TEST(HostPortTest, WhatCannotBeIsQuoted) {
  for (const char* text : {"", "host", ":80", "host:", "host:http", "host:65536", "[]:1"}) {
    const absl::Status status = ParseHostPort(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(text), std::string_view::npos);
  }
}

TEST(HostPortTest, WhoCanConnect) {
  for (const char* host : {"", "0.0.0.0", "::"}) {
    EXPECT_EQ(KindOfHost(host), HostKind::kUnspecified) << host;
  }
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    EXPECT_EQ(KindOfHost(host), HostKind::kThisHost) << host;
  }
  for (const char* host : {"10.0.0.1", "router", "localhost.example", "::2"}) {
    EXPECT_EQ(KindOfHost(host), HostKind::kAnywhere) << host;
  }
}

}  // namespace
}  // namespace tandem::host_port_test
