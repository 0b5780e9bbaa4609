#include "tests/support/fake_collector.h"

#include <chrono>
#include <utility>

#include "base/json.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace tandem {

using Json = nlohmann::json;

FakeCollector::FakeCollector(std::deque<HttpResponse> answers) : answers_(std::move(answers)) {
  std::vector<HttpRoute> routes = {
      {.method = "POST",
       .path = "/v1/traces",
       .handler = [this](const std::shared_ptr<HttpExchange>& exchange) { Handle(exchange); }}};
  auto server = HttpServer::Start({}, std::move(routes));
  EXPECT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
}

std::string FakeCollector::url() const {
  return fmt::format("http://127.0.0.1:{}/v1/traces", server_->port());
}

size_t FakeCollector::requests() {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

std::vector<Json> FakeCollector::bodies() {
  absl::MutexLock lock(&mutex_);
  return bodies_;
}

std::string FakeCollector::Header(std::string_view name) {
  absl::MutexLock lock(&mutex_);
  return std::string(latest_.Header(name).value_or(""));
}

void FakeCollector::Handle(const std::shared_ptr<HttpExchange>& exchange) {
  EXPECT_EQ(exchange->request().Header("content-type"), "application/json");
  absl::MutexLock lock(&mutex_);
  ++requests_;
  latest_ = exchange->request();
  const HttpResponse answer = answers_.front();
  if (answers_.size() > 1) answers_.pop_front();
  if (answer.status == 0) {
    held_.push_back(exchange);
  } else {
    if (answer.status == 200) bodies_.push_back(ParseJson(exchange->request().body));
    exchange->Respond(answer);
  }
  changed_.Signal();
}

std::vector<Json> FakeCollector::Spans() {
  std::vector<Json> spans;
  for (const Json& body : bodies_) {
    const Json& resource = body["resourceSpans"][0];
    std::string service;
    for (const Json& attribute : resource["resource"]["attributes"]) {
      if (attribute["key"] == "service.name") service = attribute["value"]["stringValue"];
    }
    for (Json span : resource["scopeSpans"][0]["spans"]) {
      span["service"] = service;
      spans.push_back(std::move(span));
    }
  }
  return spans;
}

std::vector<Json> FakeCollector::AwaitSpans(
    const std::function<bool(const std::vector<Json>&)>& enough) {
  absl::MutexLock lock(&mutex_);
  const bool came =
      changed_.AwaitFor(mutex_, std::chrono::minutes(1),
                        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return enough(Spans()); });
  EXPECT_TRUE(came) << "spans that were awaited did not come; there are " << Spans().size();
  return Spans();
}

}  // namespace tandem
