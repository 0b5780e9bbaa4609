#include "server/admin/status_page.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "fmt/format.h"
#include "server/admin/status_json.h"

namespace tandem {
namespace {

absl::StatusOr<int> DecisionsOf(const std::string& query) {
  int decisions = StatusPage::kUsualDecisions;
  for (absl::string_view field : absl::StrSplit(query, '&')) {
    if (!absl::ConsumePrefix(&field, "decisions=")) continue;
    const bool is_number = absl::SimpleAtoi(field, &decisions);
    if (!is_number || decisions < 0 || decisions > StatusPage::kMostDecisions) {
      return InvalidArgument("decisions={} must be a number from 0 to {}", std::string(field),
                             StatusPage::kMostDecisions);
    }
  }
  return decisions;
}

HttpResponse JsonAnswer(std::string body) {
  return {.status = 200, .body = std::move(body), .headers = {{"Cache-Control", "no-store"}}};
}

// The sort key of links, the most important highest: links with a failure come first, then those
// that carry KV.
auto Importance(const v1::LinkStatus& link) {
  const bool has_failed = !link.failure().empty() || !link.probe_failure().empty();
  return std::tuple(has_failed, link.fallbacks() > 0, link.in_use(), link.bytes());
}

// Keeps the most important links of all workers, `most` at most. Returns how many were dropped.
int KeepLinks(v1::GetStatusResponse& status, size_t most) {
  using Link = std::pair<v1::WorkerLoad*, v1::LinkStatus>;
  std::vector<Link> links;
  for (v1::WorkerStatus& worker : *status.mutable_workers()) {
    v1::WorkerLoad& load = *worker.mutable_load();
    for (v1::LinkStatus& link : *load.mutable_links()) links.emplace_back(&load, std::move(link));
    load.clear_links();
  }
  std::ranges::stable_sort(links, std::ranges::greater(),
                           [](const Link& link) { return Importance(link.second); });
  const size_t kept = std::min(most, links.size());
  for (size_t i = 0; i < kept; ++i) {
    *links[i].first->add_links() = std::move(links[i].second);
  }
  return static_cast<int>(links.size() - kept);
}

// Keeps the prediction errors over all requests, and drops those of single workers and links, of
// which there may be thousands. Returns how many were dropped.
int KeepOverallErrors(v1::PredictionUse& predictions) {
  auto& errors = *predictions.mutable_errors();
  const auto is_overall = [](const v1::PredictionError& error) { return error.worker().empty(); };
  const auto dropped = std::stable_partition(errors.begin(), errors.end(), is_overall);
  const auto count = static_cast<int>(errors.end() - dropped);
  errors.erase(dropped, errors.end());
  return count;
}

std::string BodyOf(v1::GetStatusResponse status, absl::StatusOr<v1::ExplainResponse> latest) {
  const int links = KeepLinks(status, StatusPage::kMostLinks);
  const int errors = KeepOverallErrors(*status.mutable_predictions());
  return StatusJson(status, {.latest = std::move(latest),
                             .links_left_out = links,
                             .prediction_errors_left_out = errors}) +
         "\n";
}

}  // namespace

StatusPage::StatusPage(Parts parts)
    : parts_(std::move(parts)),
      jobs_(kMostDecisions + 1),
      thread_([this] { RenderUntilClosed(); }) {}

StatusPage::~StatusPage() {
  jobs_.Close();
  thread_.join();
}

HttpRoute StatusPage::Route() {
  return {.method = "GET",
          .path = "/status.json",
          .handler = [this](const std::shared_ptr<HttpExchange>& exchange) { Handle(exchange); }};
}

void StatusPage::Handle(const std::shared_ptr<HttpExchange>& exchange) {
  const absl::StatusOr<int> decisions = DecisionsOf(exchange->request().query);
  if (!decisions.ok()) {
    const std::string why(decisions.status().message());
    return exchange->Respond(HttpError(400, why, "invalid_value"));
  }
  std::string fresh;
  {
    absl::MutexLock lock(&mutex_);
    const bool is_fresh = parts_.clock.Now() - latest_.at < kFreshFor;
    if (is_fresh && latest_.decisions == *decisions) {
      fresh = latest_.body;
    } else {
      Exchanges& waiting = waiting_[*decisions];
      waiting.push_back(exchange);
      if (waiting.size() > 1) return;
    }
  }
  if (!fresh.empty()) return exchange->Respond(JsonAnswer(std::move(fresh)));
  const auto render = [this, count = *decisions](absl::StatusOr<v1::ExplainResponse> latest) {
    jobs_.PushAlways({.decisions = count, .latest = std::move(latest)});
  };
  if (*decisions == 0) return render(v1::ExplainResponse());
  v1::ExplainRequest request;
  request.set_latest(*decisions);
  parts_.explain(std::move(request), render);
}

void StatusPage::RenderUntilClosed() {
  NameThisThread("status");
  while (!jobs_.closed()) {
    for (Job& job : jobs_.WaitAndDrain(kNoDeadline)) Answer(std::move(job));
  }
}

void StatusPage::Answer(Job job) {
  const std::string body = BodyOf(parts_.status(), std::move(job.latest));
  Exchanges answered;
  {
    absl::MutexLock lock(&mutex_);
    latest_ = {.decisions = job.decisions, .at = parts_.clock.Now(), .body = body};
    answered = std::move(waiting_[job.decisions]);
    waiting_.erase(job.decisions);
  }
  for (const std::shared_ptr<HttpExchange>& exchange : answered) {
    exchange->Respond(JsonAnswer(body));
  }
}

}  // namespace tandem
