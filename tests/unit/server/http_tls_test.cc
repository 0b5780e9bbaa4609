// HTTPS, as a client of OpenSSL sees it.

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/http_server.h"
#include "tests/support/http_peer.h"
#include "tests/support/test_certificates.h"

namespace tandem {
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
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpTlsFiles& files) {
    return HttpServer::Start(
        {.tls = files, .max_connections = 4},
        {{.method = "POST", .path = "/echo", .handler = [](const auto& exchange) {
            exchange->Respond({.body = exchange->request().body});
          }}});
  }

  const TestAuthority authority_;
  const TlsFiles files_;
};

// Sends `request` over TLS and returns all that comes until the server closes; empty when there is no
// handshake.
std::string AskOverTls(uint16_t port, const std::string& request, const std::string& ca,
                       int newest_version) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  SSL_CTX_set_security_level(context.get(), 0);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context.get(), newest_version);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  EXPECT_EQ(SSL_CTX_load_verify_locations(context.get(), ca.c_str(), nullptr), 1);
  const UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  SSL_set_fd(ssl.get(), connection.get());
  if (SSL_connect(ssl.get()) != 1) return "";
  EXPECT_GT(SSL_write(ssl.get(), request.data(), static_cast<int>(request.size())), 0);
  std::string answer;
  char bytes[16 << 10];
  int count = 0;
  while ((count = SSL_read(ssl.get(), bytes, sizeof(bytes))) > 0) {
    answer.append(bytes, static_cast<size_t>(count));
  }
  EXPECT_EQ(SSL_get_error(ssl.get(), count), SSL_ERROR_ZERO_RETURN) << "no end of TLS";
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
}  // namespace tandem
