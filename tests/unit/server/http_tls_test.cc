// HTTPS, as a client of OpenSSL sees it.

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/http_server.h"
#include "tests/support/http_peer.h"
#include "tests/support/test_certificates.h"
#include "tests/support/wait_limit.h"

namespace tandem::http_tls_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpTlsTest : public ::testing::Test {
 protected:
  HttpTlsTest() : authority_(Directory(), "ca"), files_(authority_.Issue("server")) {}

  static std::string Directory() {
    static const auto* const kPath = new std::filesystem::path([] {
      std::string path = testing::TempDir() + "/http_tls_XXXXXX";
      EXPECT_NE(mkdtemp(path.data()), nullptr);
      return path;
    }());
    return *kPath;
  }
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpTlsFiles& files,
                                                           TlsRefusals* refusals = nullptr) {
    return HttpServer::Start(
        {.tls = files, .tls_refusals = refusals, .max_connections = 4},
        {{.method = "POST", .path = "/echo", .handler = [](const auto& exchange) {
            exchange->Respond({.body = exchange->request().body});
          }}});
  }

  const TestAuthority authority_;
  const TlsFiles files_;
};

// Sends `request` over TLS and returns all that comes until the server closes; empty when there is
// no handshake, or when the server refuses the certificate of `client` after that.
std::string AskOverTls(uint16_t port, const std::string& request, const std::string& ca,
                       int newest_version, const TlsFiles& client = {}) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  SSL_CTX_set_security_level(context.get(), 0);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context.get(), newest_version);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  EXPECT_EQ(SSL_CTX_load_verify_locations(context.get(), ca.c_str(), nullptr), 1);
  if (client.enabled()) {
    EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context.get(), client.cert.c_str()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), client.key.c_str(), SSL_FILETYPE_PEM), 1);
  }
  const UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  SSL_set_fd(ssl.get(), connection.get());
  if (SSL_connect(ssl.get()) != 1) return "";
  SSL_write(ssl.get(), request.data(), static_cast<int>(request.size()));
  std::string answer;
  char bytes[16 << 10];
  int count = 0;
  while ((count = SSL_read(ssl.get(), bytes, sizeof(bytes))) > 0) {
    answer.append(bytes, static_cast<size_t>(count));
  }
  if (!answer.empty()) {
    EXPECT_EQ(SSL_get_error(ssl.get(), count), SSL_ERROR_ZERO_RETURN) << "no end of TLS";
  }
  return answer;
}

TEST_F(HttpTlsTest, RequestsAreServedOverTls12And13AndNothingOlder) {
  const auto server = Start({.cert = files_.cert, .key = files_.key});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string body(200'000, 'b');
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const std::string answer = AskOverTls((*server)->port(), request, files_.ca, version);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\n\r\n" + body));
  }
  EXPECT_EQ(AskOverTls((*server)->port(), request, files_.ca, TLS1_1_VERSION), "");
}

TEST_F(HttpTlsTest, APeerThatDoesNotSpeakTlsGetsNoAnswer) {
  const auto server = Start({.cert = files_.cert, .key = files_.key});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(HttpGet((*server)->port(), "/echo").status, 0);
}

constexpr char kEcho[] =
    "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";

TEST_F(HttpTlsTest, OneConnectionInEightMayBeInItsHandshake) {
  constexpr int kMost = 160;
  constexpr int kSilent = 30;
  const auto server =
      HttpServer::Start({.tls = {.cert = files_.cert, .key = files_.key}, .max_connections = kMost},
                        {{.method = "POST", .path = "/echo", .handler = [](const auto& exchange) {
                            exchange->Respond({.body = exchange->request().body});
                          }}});
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::unique_ptr<HttpPeer>> silent;
  for (int i = 0; i < kSilent; ++i) {
    silent.push_back(std::make_unique<HttpPeer>((*server)->port()));
  }
  for (int i = 0; i < kSilent - kMost / 8; ++i)
    EXPECT_TRUE(silent[static_cast<size_t>(i)]->AwaitEnd());
  EXPECT_EQ((*server)->use().evicted, static_cast<uint64_t>(kSilent - kMost / 8));
  EXPECT_THAT(AskOverTls((*server)->port(), kEcho, files_.ca, TLS1_3_VERSION),
              HasSubstr("\r\n\r\nhi"));
}

// How often somebody was refused for that reason; waits until there is one.
uint64_t AwaitRefused(const TlsRefusals& refusals, TlsRefusalReason reason) {
  const absl::Time end = absl::Now() + WaitLimit();
  while (absl::Now() < end) {
    for (const TlsRefusals::Count& count : refusals.counts()) {
      if (count.port == TlsPort::kHttp && count.reason == reason) return count.refused;
    }
    std::this_thread::yield();
  }
  return 0;
}

class HttpClientsTest : public HttpTlsTest {
 protected:
  TlsFiles Of(const std::string& uri) const { return authority_.IssueFor("caller", {uri}); }
  std::string Ask(const TlsFiles& client, int version = TLS1_3_VERSION) const {
    return AskOverTls((*server_)->port(), kEcho, files_.ca, version, client);
  }

  TlsRefusals refusals_;
  const absl::StatusOr<std::unique_ptr<HttpServer>> server_ =
      Start({.cert = files_.cert, .key = files_.key, .client_ca = files_.ca}, &refusals_);
};

TEST_F(HttpClientsTest, ClientsAndAdminsAreServed) {
  ASSERT_TRUE(server_.ok()) << server_.status();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    EXPECT_THAT(Ask(Of("spiffe://tandem/client/c"), version), HasSubstr("\r\n\r\nhi"));
    EXPECT_THAT(Ask(Of("spiffe://tandem/admin/a"), version), HasSubstr("\r\n\r\nhi"));
  }
  EXPECT_TRUE(refusals_.counts().empty());
}

TEST_F(HttpClientsTest, OtherIdentitiesAreToldWhatIsNeeded) {
  ASSERT_TRUE(server_.ok()) << server_.status();
  const std::string answer = Ask(Of("spiffe://tandem/worker/w"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(answer, HasSubstr("spiffe://tandem/client/*"));
  EXPECT_EQ(AwaitRefused(refusals_, TlsRefusalReason::kWrongRole), 1u);
  EXPECT_THAT(Ask(authority_.IssueFor("nobody", {})), StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ(AwaitRefused(refusals_, TlsRefusalReason::kNoIdentity), 1u);
}

TEST_F(HttpClientsTest, NobodyIsServedWithoutATrustedCertificate) {
  ASSERT_TRUE(server_.ok()) << server_.status();
  const std::string client = "spiffe://tandem/client/c";
  EXPECT_EQ(Ask({}), "");
  EXPECT_EQ(AwaitRefused(refusals_, TlsRefusalReason::kNoCertificate), 1u);
  EXPECT_EQ(Ask(authority_.IssueFor("old", {client}, TestAuthority::Validity::kExpired)), "");
  EXPECT_EQ(AwaitRefused(refusals_, TlsRefusalReason::kUntrusted), 1u);
  const TestAuthority foreign(Directory(), "foreign");
  EXPECT_EQ(Ask(foreign.IssueFor("stranger", {client})), "");
  EXPECT_EQ(HttpGet((*server_)->port(), "/echo").status, 0);
  EXPECT_EQ(AwaitRefused(refusals_, TlsRefusalReason::kNotTls), 1u);
}

TEST_F(HttpTlsTest, NewConnectionsUseTheFilesAsTheyAreThen) {
  const TlsFiles first = authority_.Issue("first");
  const auto server = Start({.cert = first.cert, .key = first.key});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto serves = [&](const std::string& ca) {
    return !AskOverTls((*server)->port(), kEcho, ca, TLS1_3_VERSION).empty();
  };
  EXPECT_TRUE(serves(first.ca));
  const TestAuthority other(Directory(), "other");
  const TlsFiles next = other.Issue("next");
  std::filesystem::rename(next.cert, first.cert);
  std::filesystem::rename(next.key, first.key);
  const absl::Time end = absl::Now() + WaitLimit();
  while (!serves(next.ca) && absl::Now() < end) std::this_thread::yield();
  EXPECT_TRUE(serves(next.ca));
  EXPECT_FALSE(serves(first.ca));
}

TEST_F(HttpTlsTest, FilesThatCannotBeUsedAreNamed) {
  const std::string other_key = authority_.Issue("other").key;
  const struct {
    HttpTlsFiles files;
    std::string named;
  } cases[] = {{{.cert = files_.cert}, "--http-tls-key"},
               {{.key = files_.key}, "--http-tls-cert"},
               {{.cert = "/nowhere.pem", .key = files_.key}, "/nowhere.pem"},
               {{.cert = files_.cert, .key = files_.cert}, files_.cert},
               {{.cert = files_.cert, .key = other_key}, other_key}};
  for (const auto& [files, named] : cases) {
    const auto server = Start(files);
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(server.status().message()), HasSubstr(named));
  }
}

}  // namespace
}  // namespace tandem::http_tls_test
