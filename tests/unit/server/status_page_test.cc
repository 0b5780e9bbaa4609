// What GET /status.json answers, and what it costs the router at most, over real sockets.

#include "server/admin/status_page.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/json.h"
#include "base/status.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/admin/status_json.h"
#include "server/http/http_server.h"
#include "tests/support/fake_clock.h"
#include "tests/support/http_peer.h"

namespace tandem::status_page_test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

// Workers that each have a link to `links` others, and errors of predictions for each.
v1::GetStatusResponse Fleet(int workers, int links) {
  v1::GetStatusResponse status;
  status.set_ready(true);
  status.set_model("sample");
  status.mutable_http()->set_open(3);
  status.mutable_predictions()->add_errors()->set_term("ttft");
  for (int i = 0; i < workers; ++i) {
    v1::WorkerStatus& worker = *status.add_workers();
    worker.set_name(fmt::format("prefill-{:02}", i));
    for (int j = 0; j < links; ++j) {
      v1::LinkStatus& link = *worker.mutable_load()->add_links();
      link.set_peer(fmt::format("decode-{:02}", j));
      link.set_transport("tcp");
      link.set_bytes(1000);
    }
    v1::PredictionError& error = *status.mutable_predictions()->add_errors();
    error.set_term("ttft");
    error.set_worker(worker.name());
  }
  return status;
}

v1::ExplainResponse Requests(int count) {
  v1::ExplainResponse response;
  for (int i = 0; i < count; ++i) {
    v1::RequestExplanation& request = *response.add_requests();
    request.set_request_id(fmt::format("request-{}", i));
    request.add_decisions()->add_candidates()->set_prefill_worker("prefill-00");
    if (i > 0) request.mutable_outcome()->set_status("OK");
  }
  return response;
}

// The router's end: counts what it is asked, and answers at once unless it is told to hold answers
// back.
class ScriptedRouter {
 public:
  v1::GetStatusResponse Status() {
    absl::MutexLock lock(&mutex_);
    ++status_calls_;
    return status_;
  }
  void Explain(const v1::ExplainRequest& request, Explained done) {
    {
      absl::MutexLock lock(&mutex_);
      asked_.push_back(request.latest());
      if (holds_) return held_.push_back(std::move(done));
    }
    if (error_) return done(*error_);
    done(Requests(request.latest()));
  }

  void SetStatus(v1::GetStatusResponse status) {
    absl::MutexLock lock(&mutex_);
    status_ = std::move(status);
  }
  void Fail(absl::Status error) { error_ = std::move(error); }  // before anybody asks
  void Hold() {
    absl::MutexLock lock(&mutex_);
    holds_ = true;
  }
  void Release() {
    std::vector<Explained> held;
    {
      absl::MutexLock lock(&mutex_);
      holds_ = false;
      held.swap(held_);
    }
    for (const Explained& done : held) done(Requests(1));
  }
  int status_calls() {
    absl::MutexLock lock(&mutex_);
    return status_calls_;
  }
  std::vector<int32_t> asked() {
    absl::MutexLock lock(&mutex_);
    return asked_;
  }

 private:
  std::optional<absl::Status> error_;
  absl::Mutex mutex_;
  v1::GetStatusResponse status_ ABSL_GUARDED_BY(mutex_) = Fleet(2, 1);
  std::vector<int32_t> asked_ ABSL_GUARDED_BY(mutex_);
  std::vector<Explained> held_ ABSL_GUARDED_BY(mutex_);
  bool holds_ ABSL_GUARDED_BY(mutex_) = false;
  int status_calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

class StatusPageTest : public ::testing::Test {
 protected:
  StatusPageTest() {
    std::vector<HttpRoute> routes;
    routes.push_back(page_.Route());
    auto server = HttpServer::Start({}, std::move(routes));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  HttpReply Get(const std::string& query = "") const {
    return HttpGet(server_->port(), "/status.json" + query);
  }
  Json GetJson(const std::string& query = "") const {
    const HttpReply reply = Get(query);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return ParseJson(reply.body);
  }
  // What was rendered before is too old to be sent again.
  void LetItAge() { clock_.Advance(StatusPage::kFreshFor); }

  FakeClock clock_;
  ScriptedRouter router_;
  StatusPage page_{
      {.status = [this] { return router_.Status(); },
       .explain = [this](const v1::ExplainRequest& request,
                         Explained done) { router_.Explain(request, std::move(done)); },
       .clock = clock_}};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(StatusPageTest, SaysWhatTheCommandsStatusAndExplainPrintAsJson) {
  const HttpReply reply = Get("?decisions=3");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.Header("content-type"), "application/json");
  EXPECT_EQ(reply.Header("cache-control"), "no-store");
  Json json = ParseJson(reply.body);
  EXPECT_EQ(json["requests"], ParseJson(ExplanationJson(Requests(3)))["requests"]);
  EXPECT_EQ(json["requests"][0]["outcome"], nullptr) << "it is in flight";
  EXPECT_EQ(json["requests"][1]["outcome"]["status"], "OK");
  EXPECT_EQ(json["http"]["open"], 3);
  v1::GetStatusResponse expected = Fleet(2, 1);
  expected.mutable_predictions()->mutable_errors()->DeleteSubrange(1, 2);
  for (const char* more :
       {"requests", "requests_missing", "links_left_out", "prediction_errors_left_out"}) {
    ASSERT_TRUE(json.contains(more)) << more;
    json.erase(more);
  }
  EXPECT_EQ(json, ParseJson(StatusJson(expected)));
}

TEST_F(StatusPageTest, TheNumberOfDecisionsIsBounded) {
  EXPECT_EQ(GetJson()["requests"].size(), 20u);
  EXPECT_EQ(GetJson("?decisions=50")["requests"].size(), 50u);
  EXPECT_EQ(GetJson("?other=1&decisions=7")["requests"].size(), 7u);
  EXPECT_EQ(GetJson("?decisions=0")["requests"], Json::array());
  EXPECT_THAT(router_.asked(), testing::ElementsAre(20, 50, 7)) << "none are asked for none";
  for (const char* wrong : {"51", "-1", "", "x", "1e3", "99999999999"}) {
    const HttpReply reply = Get(fmt::format("?decisions={}", wrong));
    EXPECT_EQ(reply.status, 400) << wrong;
    EXPECT_THAT(reply.body,
                HasSubstr(fmt::format("decisions={} must be a number from 0 to 50", wrong)));
  }
  EXPECT_EQ(router_.asked().size(), 3u) << "the router is not asked for what is refused";
}

TEST_F(StatusPageTest, OnlyGetAndHeadAreServed) {
  HttpPeer peer(server_->port());
  const HttpReply refused = peer.Post("/status.json", "{}");
  EXPECT_EQ(refused.status, 405);
  EXPECT_THAT(std::string(refused.Header("allow")), HasSubstr("GET"));
  peer.Send("HEAD /status.json HTTP/1.1\r\nHost: h\r\n\r\n");
  const HttpReply head = peer.Read("HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
}

TEST_F(StatusPageTest, OfManyLinksThoseWithFailuresAndThoseInUseAreKept) {
  v1::GetStatusResponse status = Fleet(32, 32);
  v1::WorkerLoad& last = *status.mutable_workers(31)->mutable_load();
  last.mutable_links(31)->set_failure("the connection was cut");
  last.mutable_links(30)->set_in_use(true);
  last.mutable_links(29)->set_fallbacks(2);
  router_.SetStatus(status);
  const Json json = GetJson();
  size_t kept = 0;
  for (const Json& worker : json["workers"]) kept += worker["links"].size();
  EXPECT_EQ(kept, size_t{StatusPage::kMostLinks});
  EXPECT_EQ(json["links_left_out"], 32 * 32 - StatusPage::kMostLinks);
  const Json& links = json["workers"][31]["links"];
  ASSERT_GE(links.size(), 3u);
  EXPECT_EQ(links[0]["failure"], "the connection was cut");
  EXPECT_EQ(links[1]["fallbacks"], 2);
  EXPECT_EQ(links[2]["in_use"], true);
}

TEST_F(StatusPageTest, LinksDoNotMakeTheAnswerOfALargeFleetLonger) {
  router_.SetStatus(Fleet(64, 2));
  const size_t with_few = Get().body.size();
  LetItAge();
  router_.SetStatus(Fleet(64, 64));
  const size_t with_many = Get().body.size();
  EXPECT_LT(static_cast<double>(with_many), 1.01 * static_cast<double>(with_few));
}

TEST_F(StatusPageTest, OfPredictionErrorsThoseOfAllWorkersAreKept) {
  const Json json = GetJson();
  ASSERT_EQ(json["predictions"]["errors"].size(), 1u);
  EXPECT_EQ(json["predictions"]["errors"][0]["worker"], "");
  EXPECT_EQ(json["prediction_errors_left_out"], 2);
}

TEST_F(StatusPageTest, AYoungAnswerIsSentAgain) {
  const std::string first = Get().body;
  clock_.Advance(StatusPage::kFreshFor - std::chrono::milliseconds(1));
  router_.SetStatus(Fleet(3, 1));
  EXPECT_EQ(Get().body, first);
  EXPECT_EQ(router_.status_calls(), 1);
  EXPECT_NE(Get("?decisions=1").body, first) << "it has other requests";
  clock_.Advance(StatusPage::kFreshFor);
  EXPECT_EQ(GetJson()["workers"].size(), 3u);
  EXPECT_EQ(router_.status_calls(), 3);
}

TEST_F(StatusPageTest, AllWhoAskMeanwhileGetTheAnswerThatIsBeingMade) {
  router_.Hold();
  std::vector<std::unique_ptr<HttpPeer>> peers;
  for (int i = 0; i < 8; ++i) {
    peers.push_back(std::make_unique<HttpPeer>(server_->port()));
    ASSERT_TRUE(peers.back()->Send("GET /status.json HTTP/1.1\r\nHost: h\r\n\r\n"));
  }
  while (server_->use().requests < peers.size()) std::this_thread::yield();
  // The server has one thread, which handed all of them over before it serves another.
  ASSERT_EQ(Get("?decisions=0").status, 200);
  router_.Release();
  std::vector<std::string> bodies;
  for (const auto& peer : peers) bodies.push_back(peer->Read().body);
  EXPECT_THAT(bodies, testing::Each(bodies[0]));
  EXPECT_EQ(router_.asked().size(), 1u);
  EXPECT_EQ(ParseJson(bodies[0])["requests"].size(), 1u);
}

TEST_F(StatusPageTest, WithoutTheRequestsTheStatusIsStillThere) {
  router_.Fail(ResourceExhausted("the router's queue is full: retry later"));
  const Json json = GetJson();
  EXPECT_EQ(json["ready"], true);
  EXPECT_EQ(json["requests"], nullptr);
  EXPECT_EQ(json["requests_missing"], "the router's queue is full: retry later");
}

}  // namespace
}  // namespace tandem::status_page_test
