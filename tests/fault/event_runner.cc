#include "tests/fault/event_runner.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/fault/running_event.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// No request needs that long, whatever happens to it.
constexpr seconds kTimeout(60);
// Of those that shall expire.
constexpr milliseconds kShortTimeout(1500);

// The whole of `told`, or a beginning of it.
bool IsPrefix(const std::vector<int32_t>& part, const std::vector<int32_t>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

bool NeedsALongPrompt(Moment moment) {
  return moment == Moment::kMoving || moment == Moment::kWaiting;
}

bool NeedsAPromptThatIsNotCached(Moment moment) {
  return moment != Moment::kAccepted && moment != Moment::kQueued && moment != Moment::kDecoding &&
         moment != Moment::kIdle;
}

}  // namespace

EventRunner::EventRunner(Fleet& fleet, FrameDesk& desk, const std::vector<FaultCase>& cases,
                         FaultFindings& findings)
    : fleet_(fleet),
      desk_(desk),
      cases_(cases),
      findings_(findings),
      stub_(v1::Inference::NewStub(
          grpc::CreateChannel(fleet.router(), grpc::InsecureChannelCredentials()))) {
  for (const FaultCase& one : cases_) {
    if (IsLong(one.request)) long_cases_.push_back(&one);
  }
}

void EventRunner::Settle() {
  desk_.Release();
  sent_ = fleet_.status().latest()->requests_total();
}

const FaultCase& EventRunner::CaseOf(const FaultEvent& event) const {
  if (!NeedsALongPrompt(event.row.moment)) return cases_[event.request];
  return *long_cases_[event.request % long_cases_.size()];
}

EventRunner::Running EventRunner::MakeRunning(const FaultEvent& event) const {
  const FaultCase& expected = CaseOf(event);
  return {.event = event,
          .expected = expected,
          .random = std::mt19937_64(event.seed),
          .request = expected.request,
          .timeout = kTimeout};
}

bool EventRunner::Run(const FaultEvent& event) {
  const FaultRow& row = event.row;
  Running running = MakeRunning(event);
  if (running.is(FaultKind::kDeadline)) running.timeout = kShortTimeout;
  running.pause = milliseconds(running.Draw(kShortPause.count(), kLongestPause.count()));
  running.request.set_route(row.target == FaultTarget::kUnified ? v1::ROUTE_UNIFIED
                                                                : v1::ROUTE_DISAGGREGATED);
  if (row.target == FaultTarget::kClient && row.moment == Moment::kDecoding) {
    running.request.set_route(static_cast<v1::Route>(running.Draw(0, 2)));
  }
  // What waits for a frame needs one: nothing of its prompt may be cached at the decode worker.
  const bool alone = NeedsAPromptThatIsNotCached(row.moment) || running.Draw(0, 1) == 0;
  running.request.set_cache_salt(alone ? fmt::format("{}-{}", event.id, event.seed) : "shared");
  const bool came_about = BringAbout(running);
  running.call->AwaitEnd();
  desk_.Take(running.ticket);
  Check(running);
  const bool expires = running.is(FaultKind::kDeadline);
  if (expires && !absl::IsDeadlineExceeded(running.call->status())) return false;
  return came_about && HadTheWorker(running);
}

// Whether the answer shows that the request was at the worker that was chosen by the status: it
// lost a worker where it had to, or names that one and none before.
bool EventRunner::HadTheWorker(const Running& running) {
  const GenerateCall& call = *running.call;
  if (running.guessed == nullptr || !call.status().ok()) return true;
  const Generation& answer = call.generation();
  if (answer.summary.usage().resumes() > 0) return true;
  if (MustResume(running.event.row)) return false;
  return std::ranges::any_of(answer.choices, [&running](const Generation::Choice& choice) {
    const std::string& name = running.guessed->name();
    return choice.finish.prefill_worker() == name || choice.finish.decode_worker() == name;
  });
}

void EventRunner::Check(const Running& running) {
  const GenerateCall& call = *running.call;
  const std::string mismatch = Mismatch(running);
  const absl::Status& status = call.status();
  const bool was_cancelled = running.MayBeCancelled() && absl::IsCancelled(status);
  const bool expired = running.MayExpire() && absl::IsDeadlineExceeded(status);
  const bool well = status.ok() || was_cancelled || expired;
  if (!mismatch.empty()) Found(running, mismatch);
  if (!well) Found(running, status.ToString());
  if (!mismatch.empty() || !well) {
    ++endings_.wrong;
  } else if (status.ok()) {
    ++endings_.ok;
  } else {
    ++(expired ? endings_.expired : endings_.cancelled);
  }
}

// How what the client was told differs from what it should have been; empty when it does not.
std::string EventRunner::Mismatch(const Running& running) const {
  const GenerateCall& call = *running.call;
  const auto& told = call.generation().choices;
  const auto& whole = running.expected.undisturbed.choices;
  const bool ok = call.status().ok();
  if (!call.disorder().empty()) return call.disorder();
  if (ok && !call.has_summary()) return "no summary";
  if (told.size() > whole.size() || (ok && told.size() != whole.size())) {
    return fmt::format("{} choices instead of {}", told.size(), whole.size());
  }
  if (ok && call.finishes() != whole.size()) return fmt::format("{} finishes", call.finishes());
  for (size_t i = 0; i < told.size(); ++i) {
    const auto& tokens = told[i].token_ids;
    const auto& expected = whole[i].token_ids;
    if (LosesKv(running.request)) {
      const auto longest = static_cast<size_t>(running.request.max_tokens());
      const bool whole_length = !ok || !running.request.ignore_eos() || tokens.size() == longest;
      if (tokens.size() <= longest && whole_length) continue;
      return fmt::format("choice {} has {} of {} tokens", i, tokens.size(), longest);
    }
    if (!IsPrefix(tokens, expected) || (ok && tokens.size() != expected.size())) {
      return fmt::format("wrong tokens: choice {} has {} [{}] instead of {} [{}]", i, tokens.size(),
                         fmt::join(tokens, " "), expected.size(), fmt::join(expected, " "));
    }
    if (ok && told[i].finish.reason() != whole[i].finish.reason()) {
      return fmt::format("choice {} finished with {} instead of {}", i,
                         Name(told[i].finish.reason()), Name(whole[i].finish.reason()));
    }
  }
  return "";
}

void EventRunner::Found(const Running& running, const std::string& what) {
  const FaultEvent& event = running.event;
  findings_.Add(fmt::format(
      "event={} row=\"{}\"{} request={} prompt_tokens={} n={}: {}", event.id, Name(event.row),
      running.part == Running::Part::kCompanion ? " companion" : "", event.request,
      running.request.token_ids().ids_size(), running.request.n(), what));
}

}  // namespace tandem
