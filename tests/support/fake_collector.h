#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/condition_variable.h"
#include "nlohmann/json.hpp"
#include "server/http/http_server.h"

namespace tandem {

// A collector of spans on loopback that answers as a test says. Thread-safe.
class FakeCollector {
 public:
  // What it answers, one after the other; the last one holds for all that follow. A status of 0 is
  // no answer: the request is held until the collector ends.
  explicit FakeCollector(std::deque<HttpResponse> answers = {HttpResponse{.body = "{}"}});

  std::string url() const;
  size_t requests();
  // The bodies that were answered 200.
  std::vector<nlohmann::json> bodies();
  // Of the latest request; empty where it had none of that name.
  std::string Header(std::string_view name);
  // The spans in these, once `enough` of them; fails the test after a minute. Each has a member
  // "service" with the name of its process's service.
  std::vector<nlohmann::json> AwaitSpans(
      const std::function<bool(const std::vector<nlohmann::json>&)>& enough);

 private:
  void Handle(const std::shared_ptr<HttpExchange>& exchange);
  std::vector<nlohmann::json> Spans() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  MonotonicCondVar changed_;
  std::deque<HttpResponse> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<nlohmann::json> bodies_ ABSL_GUARDED_BY(mutex_);
  HttpRequest latest_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<HttpExchange>> held_ ABSL_GUARDED_BY(mutex_);
  size_t requests_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<HttpServer> server_;  // last: its thread calls Handle
};

}  // namespace tandem
