#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "server/admin/explain_page.h"
#include "server/http/http_route.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Serves GET /status.json, which answers with the status of the router and its workers and with its
// latest requests (docs/status_page.md), for the status page and for programs. Browsers poll it, so
// its cost is bounded: an answer has at most kMostLinks links and kMostDecisions requests, it is
// rendered on a thread of its own, and an answer that is younger than kFreshFor is sent again. One
// task of the router's loop copies the requests.
class StatusPage {
 public:
  static constexpr int kUsualDecisions = 20;
  static constexpr int kMostDecisions = 50;  // the largest N of ?decisions=N
  static constexpr int kMostLinks = 128;
  static constexpr Duration kFreshFor = std::chrono::milliseconds(250);

  struct Parts {
    std::function<v1::GetStatusResponse()> status;  // Router::Status; thread-safe
    ExplainCall explain;                            // Router::Explain
    const Clock& clock;                             // must outlive the status page
  };
  explicit StatusPage(Parts parts);
  // The server with this route, and the router's loop, must have ended before.
  ~StatusPage();

  HttpRoute Route();

 private:
  using Exchanges = std::vector<std::shared_ptr<HttpExchange>>;
  // An answer to render: the requests that were asked for, or why they could not be read.
  struct Job {
    int decisions = 0;
    absl::StatusOr<v1::ExplainResponse> latest;
  };
  struct Rendered {
    int decisions = -1;  // the N that was asked for; -1: nothing was rendered yet
    TimePoint at;
    std::string body;
  };

  void Handle(const std::shared_ptr<HttpExchange>& exchange);
  void RenderUntilClosed();
  void Answer(Job job);

  const Parts parts_;
  absl::Mutex mutex_;
  Rendered latest_ ABSL_GUARDED_BY(mutex_);
  // The HTTP exchanges that wait for an answer which is being made, by the number of requests in
  // it.
  absl::flat_hash_map<int, Exchanges> waiting_ ABSL_GUARDED_BY(mutex_);
  BoundedQueue<Job> jobs_;  // at most one for each entry of waiting_
  std::thread thread_;      // last: it uses the other members
};

}  // namespace tandem
