#include "tests/fault/fault_run.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

constexpr size_t kBatch = 60;
constexpr int kTries = 5;
// Leases lapse in this time, and workers that were lost come back.
constexpr std::chrono::seconds kRestWithin(15);
constexpr int32_t kVocabulary = 2043;  // of the sample model, without its special tokens

// A router and a unified worker that nothing happens to.
class QuietPair {
 public:
  QuietPair(const FaultRunOptions& options, Findings& findings) {
    const std::string model = "--model=" + options.model;
    router_ = Start(options, {"router", "--port=0", model, "--log-level=error"}, findings);
    worker_ = Start(options,
                    {"worker", "--role=unified", "--name=quiet", "--router=" + address_,
                     "--threads=1", model, "--log-level=error"},
                    findings);
  }
  ~QuietPair() {
    for (auto* process : {&worker_, &router_}) {
      if (!*process) continue;
      (*process)->Signal(SIGKILL);
      waitpid((*process)->pid(), nullptr, 0);
    }
  }
  const std::string& address() const { return address_; }

 private:
  std::optional<ChildProcess> Start(const FaultRunOptions& options,
                                    const std::vector<std::string>& arguments, Findings& findings) {
    auto process = ChildProcess::Start(arguments, options.binary);
    if (!process.ok()) {
      findings.Add(process.status().ToString());
      return std::nullopt;
    }
    const std::string ready = process->TakeReadyLine();
    if (ready.empty()) findings.Add(arguments.front() + " did not start");
    if (address_.empty()) address_ = ready;
    return *std::move(process);
  }

  std::string address_;
  std::optional<ChildProcess> router_;
  std::optional<ChildProcess> worker_;
};

// Events that wait for a thread; of those that lose a worker one per role is under way.
class EventQueue {
 public:
  explicit EventQueue(std::vector<FaultEvent> events) : events_(std::move(events)) {}

  // The first that may begin; waits for one. Nothing when all are taken.
  std::optional<FaultEvent> Take() {
    absl::MutexLock lock(&mutex_);
    const auto may_take = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return events_.empty() || FirstFree() != events_.end();
    };
    mutex_.Await(absl::Condition(&may_take));
    if (events_.empty()) return std::nullopt;
    const auto place = FirstFree();
    const FaultEvent event = *place;
    events_.erase(place);
    if (LosesWorker(event.row)) losing_.insert(event.row.target);
    return event;
  }
  void Done(const FaultEvent& event) {
    absl::MutexLock lock(&mutex_);
    if (LosesWorker(event.row)) losing_.erase(event.row.target);
  }

 private:
  std::vector<FaultEvent>::iterator FirstFree() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::find_if(events_.begin(), events_.end(),
                        [this](const FaultEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                          return !LosesWorker(event.row) || !losing_.contains(event.row.target);
                        });
  }

  absl::Mutex mutex_;
  std::vector<FaultEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::set<FaultTarget> losing_ ABSL_GUARDED_BY(mutex_);
};

// Counts are summed; times are the largest of the fleets, since nothing finer is told.
template <typename Use>
void LargestTimes(const Use& some, Use& all) {
  all.set_p50_ms(std::max(all.p50_ms(), some.p50_ms()));
  all.set_p99_ms(std::max(all.p99_ms(), some.p99_ms()));
  all.set_max_ms(std::max(all.max_ms(), some.max_ms()));
}

void AddCause(const v1::ResumeCause& some, v1::ResumeUse& all) {
  auto& causes = *all.mutable_causes();
  auto place = std::find_if(causes.begin(), causes.end(), [&some](const v1::ResumeCause& cause) {
    return cause.cause() == some.cause();
  });
  v1::ResumeCause& cause = place != causes.end() ? *place : *all.add_causes();
  cause.set_cause(some.cause());
  cause.set_resumes(cause.resumes() + some.resumes());
  LargestTimes(some, cause);
}

}  // namespace

FaultRun::FaultRun(FaultRunOptions options) : options_(std::move(options)) {}

void FaultRun::PrepareCases() {
  const size_t count = std::clamp<size_t>(options_.events / 8, 24, 400);
  for (v1::GenerateRequest& request : DrawRequests(options_.seed, count, kVocabulary)) {
    cases_.push_back({.request = std::move(request), .undisturbed = {}});
  }
  const QuietPair pair(options_, findings_);
  Client client(pair.address());
  std::atomic<size_t> next = 0;
  const auto ask = [&] {
    for (size_t i = next++; i < cases_.size(); i = next++) {
      v1::GenerateRequest request = cases_[i].request;
      request.set_route(v1::ROUTE_UNIFIED);
      const Outcome outcome = Ask(client, request);
      if (!outcome.status.ok()) findings_.Add("undisturbed: " + outcome.status.ToString());
      cases_[i].undisturbed = outcome.generation;
    }
  };
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < options_.at_once; ++i) threads.emplace_back(ask);
}

FaultReport FaultRun::Run() {
  const TimePoint began = std::chrono::steady_clock::now();
  PrepareCases();
  const auto part = [this](double share) {
    return static_cast<size_t>(share * static_cast<double>(options_.events));
  };
  const size_t on_shm = part(options_.shm_share);
  const size_t on_ipc = part(options_.ipc_share);
  RunFleets(FaultLink::kTcp, options_.events - on_shm - on_ipc);
  RunFleets(FaultLink::kShm, on_shm);
  RunFleets(FaultLink::kIpc, on_ipc);
  CheckRows();
  absl::MutexLock lock(&mutex_);
  report_.options = options_;
  report_.found = findings_.all();
  report_.seconds = ToMilliseconds(std::chrono::steady_clock::now() - began) / 1000;
  return report_;
}

void FaultRun::RunFleets(FaultLink link, size_t events) {
  if (events == 0 || !findings_.all().empty()) return;
  const uint64_t seed = options_.seed * 4 + static_cast<uint64_t>(link);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < options_.fleets; ++i) {
    const size_t share = events * (i + 1) / options_.fleets - events * i / options_.fleets;
    if (share == 0) continue;
    threads.emplace_back([=, this] { RunFleet(link, share, seed + (uint64_t{i} << 32)); });
  }
}

void FaultRun::RunFleet(FaultLink link, size_t events, uint64_t seed) {
  Fleet fleet({.link = link,
               .binary = options_.binary,
               .model = options_.model,
               .router_flags = {"--max-resumes=40"},
               .worker_flags = {"--kv-probe=off"}},
              findings_);
  if (!fleet.AwaitUp()) return findings_.Add("the fleet did not start");
  FrameDesk desk(fleet.proxies());
  EventRunner runner(fleet, desk, cases_, findings_);
  std::vector<FaultRow> rows = AllRows(link);
  std::erase_if(rows, [this](const FaultRow& row) {
    return Name(row).find(options_.only) == std::string::npos;
  });
  if (rows.empty()) return;
  const auto schedule = MakeSchedule(seed, events, rows, cases_.size());
  bool rests = fleet.AwaitRest(kRestWithin);
  for (size_t at = 0; rests && at < schedule.size(); at += kBatch) {
    const size_t end = std::min(schedule.size(), at + kBatch);
    runner.Settle();
    RunBatch(runner, fleet,
             {schedule.begin() + static_cast<ptrdiff_t>(at),
              schedule.begin() + static_cast<ptrdiff_t>(end)});
    desk.Release();
    rests = fleet.AwaitRest(kRestWithin);
    std::fprintf(stderr, "%s: %zu of %zu events\n", std::string(Name(link)).c_str(), end, events);
  }
  if (!rests) findings_.Add(fmt::format("seed={} link={}: stopped", options_.seed, Name(link)));
  Add(*fleet.status().latest());
  const LossTimes losses = fleet.losses();
  absl::MutexLock lock(&mutex_);
  report_.ok += runner.endings().ok;
  report_.cancelled += runner.endings().cancelled;
  report_.expired += runner.endings().expired;
  report_.wrong += runner.endings().wrong;
  for (auto times : {&LossTimes::kill_ms, &LossTimes::stop_ms, &LossTimes::freeze_ms,
                     &LossTimes::idle_freeze_ms}) {
    auto& all = report_.losses.*times;
    all.insert(all.end(), (losses.*times).begin(), (losses.*times).end());
  }
}

void FaultRun::RunBatch(EventRunner& runner, Fleet& fleet, std::vector<FaultEvent> batch) {
  EventQueue queue(std::move(batch));
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < options_.at_once; ++i) {
    threads.emplace_back([&] {
      while (const std::optional<FaultEvent> event = queue.Take()) {
        RunEvent(runner, *event);
        if (LosesWorker(event->row)) fleet.AwaitUp(event->row.target);
        queue.Done(*event);
      }
    });
  }
}

// A fault whose moment did not come, because the request was over or the worker was down, is tried
// again with another request.
void FaultRun::RunEvent(EventRunner& runner, FaultEvent event) {
  bool hit = false;
  for (int i = 0; i < kTries && !hit; ++i) {
    hit = runner.Run(event);
    std::mt19937_64 random(event.seed);
    event.seed = random();
    event.request = random() % cases_.size();
  }
  absl::MutexLock lock(&mutex_);
  RowCount& count = report_.rows[event.row];
  ++count.scheduled;
  ++(hit ? count.hit : count.missed);
}

void FaultRun::Add(const v1::GetStatusResponse& status) {
  absl::MutexLock lock(&mutex_);
  v1::ResumeUse& all = report_.resumes;
  const v1::ResumeUse& some = status.resumes();
  all.set_lost(all.lost() + some.lost());
  all.set_migrated(all.migrated() + some.migrated());
  all.set_gave_up(all.gave_up() + some.gave_up());
  LargestTimes(some, all);
  for (const v1::ResumeCause& cause : some.causes()) AddCause(cause, all);
  v1::HandoffUse& handoffs = report_.handoffs;
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::HandoffUse& use = worker.handoffs();
    handoffs.set_sent(handoffs.sent() + use.sent());
    handoffs.set_received(handoffs.received() + use.received());
    handoffs.set_retried(handoffs.retried() + use.retried());
    handoffs.set_lapsed(handoffs.lapsed() + use.lapsed());
    handoffs.set_refused(handoffs.refused() + use.refused());
    handoffs.set_corrupted_frames(handoffs.corrupted_frames() + use.corrupted_frames());
    handoffs.set_stale_frames(handoffs.stale_frames() + use.stale_frames());
    handoffs.set_stranger_frames(handoffs.stranger_frames() + use.stranger_frames());
    handoffs.set_connections_closed(handoffs.connections_closed() + use.connections_closed());
  }
}

// A row that was scheduled and never came about shows nothing.
void FaultRun::CheckRows() {
  absl::MutexLock lock(&mutex_);
  for (const auto& [row, count] : report_.rows) {
    if (count.hit == 0 && count.scheduled > 1) {
      findings_.Add(
          fmt::format("row \"{}\" never came about ({} events)", Name(row), count.scheduled));
    }
  }
}

}  // namespace tandem
