// The page as browsers and others get it, over real sockets.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/http_server.h"
#include "server/page/page_files.h"
#include "server/page/page_routes.h"
#include "tests/support/http_peer.h"
#include "tests/support/read_file.h"
#include "tests/support/tree.h"

namespace tandem::page_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What Chromium sends for an address that a person typed.
constexpr char kBrowser[] =
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8\r\n";

std::string InTree(std::string_view name) {
  return ReadFile(TreePath(fmt::format("server/page/{}", name)));
}

std::string PathOf(const PageFile& file) {
  if (file.name == "index.html") return "/";
  return file.name == "status.html" ? "/status" : fmt::format("/{}", file.name);
}

class PageTest : public ::testing::Test {
 protected:
  PageTest() {
    std::vector<HttpRoute> routes = {
        {.method = "POST", .path = "/v1/completions", .handler = [](const auto&) {}},
        {.method = "GET",
         .path = "/v1/models/",
         .handler = [](const auto&) {},
         .match = HttpMatch::kPrefix}};
    for (HttpRoute& route : PageRoutes("some-model", routes)) routes.push_back(std::move(route));
    auto server = HttpServer::Start({}, std::move(routes));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  HttpReply Ask(std::string_view method, std::string_view path, std::string_view headers) const {
    HttpPeer peer(server_->port());
    peer.Send(fmt::format("{} {} HTTP/1.1\r\nHost: h\r\n{}\r\n", method, path, headers));
    return peer.Read(method);
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(PageTest, BrowsersGetTheFilesOfTheTree) {
  const std::map<std::string_view, std::string> types = {{"html", "text/html; charset=utf-8"},
                                                         {"css", "text/css; charset=utf-8"},
                                                         {"js", "text/javascript; charset=utf-8"},
                                                         {"svg", "image/svg+xml"}};
  ASSERT_EQ(PageFiles().size(), 17u);
  for (const PageFile& file : PageFiles()) {
    SCOPED_TRACE(file.name);
    const HttpReply reply = Ask("GET", PathOf(file), kBrowser);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, InTree(file.name));
    EXPECT_EQ(reply.Header("content-type"), types.at(file.name.substr(file.name.rfind('.') + 1)));
  }
}

TEST_F(PageTest, NothingButItsOwnFilesMayRun) {
  for (const PageFile& file : PageFiles()) {
    SCOPED_TRACE(file.name);
    const HttpReply reply = Ask("GET", PathOf(file), kBrowser);
    EXPECT_EQ(reply.Header("x-content-type-options"), "nosniff");
    EXPECT_EQ(reply.Header("referrer-policy"), "no-referrer");
    const std::string policy(reply.Header("content-security-policy"));
    EXPECT_THAT(policy, HasSubstr("default-src 'none'; script-src 'self'; style-src 'self'"));
    EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  }
}

// The policy forbids what is inline, and text of a model must never become markup.
TEST_F(PageTest, NothingIsInlineForeignOrMadeOfMarkup) {
  for (const PageFile& file : PageFiles()) {
    SCOPED_TRACE(file.name);
    const std::string text = InTree(file.name);
    for (const char* word :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
          "https://", " style=", " onclick=", "@import", "<script>"}) {
      EXPECT_THAT(text, Not(HasSubstr(word)));
    }
    if (!file.name.ends_with(".svg")) {  // which names its format by an address
      EXPECT_THAT(text, Not(HasSubstr("http://")));
      EXPECT_THAT(text, Not(HasSubstr("<style")));
    }
  }
}

TEST_F(PageTest, AFileThatTheBrowserHasIsNotSentAgain) {
  for (const PageFile& file : PageFiles()) {
    SCOPED_TRACE(file.name);
    const HttpReply first = Ask("GET", PathOf(file), kBrowser);
    EXPECT_EQ(first.Header("cache-control"), "no-cache");
    const std::string tag(first.Header("etag"));
    ASSERT_EQ(tag.size(), 34u);
    for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
      const HttpReply again =
          Ask("GET", PathOf(file), fmt::format("{}If-None-Match: {}\r\n", kBrowser, known));
      EXPECT_EQ(again.status, 304) << known;
      EXPECT_EQ(again.Header("etag"), tag);
      EXPECT_EQ(again.body, "");
    }
    const HttpReply other =
        Ask("GET", PathOf(file), fmt::format("{}If-None-Match: \"other\"\r\n", kBrowser));
    EXPECT_EQ(other.status, 200);
    EXPECT_EQ(other.body, first.body);
  }
}

TEST_F(PageTest, HeadHasTheHeadersOfGet) {
  for (const PageFile& file : PageFiles()) {
    SCOPED_TRACE(file.name);
    const HttpReply get = Ask("GET", PathOf(file), kBrowser);
    const HttpReply head = Ask("HEAD", PathOf(file), kBrowser);
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.body, "");
    for (const char* name : {"content-type", "content-length", "etag", "content-security-policy"}) {
      EXPECT_EQ(head.Header(name), get.Header(name)) << name;
    }
    EXPECT_EQ(get.Header("content-length"), std::to_string(file.bytes.size()));
  }
}

TEST_F(PageTest, OtherClientsGetTheNamesOfTheEndpoints) {
  for (const char* headers : {"", "Accept: */*\r\n", "Accept: application/json\r\n"}) {
    const HttpReply reply = Ask("GET", "/", headers);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.Header("content-type"), "text/plain; charset=utf-8");
    EXPECT_EQ(reply.Header("vary"), "Accept");
    EXPECT_THAT(reply.body, HasSubstr("some-model"));
    EXPECT_THAT(reply.body, HasSubstr("POST /v1/completions\n"));
    EXPECT_THAT(reply.body, HasSubstr("GET  /v1/models/...\n"));
  }
  EXPECT_EQ(Ask("GET", "/", kBrowser).Header("vary"), "Accept");
  EXPECT_EQ(Ask("POST", "/", kBrowser).status, 405);
  EXPECT_EQ(Ask("GET", "/index.html", kBrowser).status, 404);
  EXPECT_EQ(Ask("GET", "/status.html", kBrowser).status, 404);
}

}  // namespace
}  // namespace tandem::page_test
