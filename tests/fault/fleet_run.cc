#include "tests/fault/fleet_run.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "fmt/format.h"

namespace tandem {
namespace {

constexpr size_t kBatch = 60;
constexpr int kTries = 5;
// Rows that did not come about are scheduled again so often. Some need a worker to be guessed out
// of two, so that four tries miss one row in sixteen; such rounds are short.
constexpr int kMoreRounds = 12;
// Leases lapse in this time, and workers that were lost come back.
constexpr std::chrono::seconds kRestWithin(15);

// With one worker of a role lost, all KV of a slow fleet goes over one link: with more requests at
// once it would take one of them longer than any may live.
constexpr size_t kAtOnceWithSlowKv = 4;

FleetOptions FleetOptionsOf(const FleetRun::Options& options) {
  FleetOptions fleet{.setup = options.setup,
                     .binary = options.binary,
                     .model = options.model,
                     .router_flags = {"--max-resumes=40"},
                     .worker_flags = {"--kv-probe=off", "--drain-seconds=10"},
                     .prefill_flags = {},
                     .decode_flags = {}};
  switch (options.setup) {
    case FaultSetup::kTcp:
    case FaultSetup::kShm:
    case FaultSetup::kIpc:
      break;
    case FaultSetup::kTcpTight:
      // Two of the longer requests do not fit at once, each alone does.
      fleet.decode_flags = {"--kv-tokens=832"};
      fleet.prefill_flags = {"--kv-bandwidth=4MB"};
      break;
    case FaultSetup::kShmSlow:
    case FaultSetup::kIpcSlow:
      // 1.2 MB and more of a long request (IsLong) are under way longer than one that expires
      // lives.
      fleet.prefill_flags = {"--kv-bandwidth=1MB"};
      break;
  }
  return fleet;
}

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

void AddResumes(const v1::ResumeUse& some, v1::ResumeUse& all) {
  all.set_lost(all.lost() + some.lost());
  all.set_migrated(all.migrated() + some.migrated());
  all.set_gave_up(all.gave_up() + some.gave_up());
  LargestTimes(some, all);
  LargestTimes(some.waited(), *all.mutable_waited());
  for (const v1::ResumeCause& cause : some.causes()) AddCause(cause, all);
}

}  // namespace

RowCount FleetReport::Total() const {
  RowCount total;
  for (const auto& [row, count] : rows) {
    total.scheduled += count.scheduled;
    total.hit += count.hit;
    total.missed += count.missed;
  }
  return total;
}

void FleetReport::Add(const FleetReport& some) {
  for (const auto& [row, count] : some.rows) {
    RowCount& all = rows[row];
    all.scheduled += count.scheduled;
    all.hit += count.hit;
    all.missed += count.missed;
  }
  not_run += some.not_run;
  ok += some.ok;
  cancelled += some.cancelled;
  expired += some.expired;
  wrong += some.wrong;
  losses.Add(some.losses);
  peaks.Raise(some.peaks);
  AddResumes(some.resumes, resumes);
  handoffs.Add(some.handoffs);
}

FleetRun::FleetRun(Options options, const std::vector<FaultCase>& cases, FaultFindings& findings)
    : options_(std::move(options)),
      cases_(cases),
      findings_(findings),
      at_once_(IsSlow(options_.setup) ? std::min(options_.at_once, kAtOnceWithSlowKv)
                                      : options_.at_once) {}

FleetReport FleetRun::Run() {
  std::vector<FaultRow> rows = AllRows(options_.setup);
  std::erase_if(rows, [this](const FaultRow& row) {
    return Name(row).find(options_.only) == std::string::npos;
  });
  if (rows.empty()) return {};
  Fleet fleet(FleetOptionsOf(options_), findings_);
  bool goes_on = fleet.AwaitUp();
  if (!goes_on) findings_.Add("the fleet did not start");
  FrameDesk desk(fleet.proxies());
  EventRunner runner(fleet, desk, cases_, findings_);
  const auto events = MakeSchedule(options_.seed, options_.events, rows, cases_.size());
  goes_on = goes_on && fleet.AwaitRest(kRestWithin) && RunBatches(runner, fleet, desk, events);
  std::mt19937_64 random(options_.seed);
  for (int i = 0; i < kMoreRounds && goes_on; ++i) {
    const std::vector<FaultRow> missed = RowsThatNeverCameAbout();
    if (missed.empty()) break;
    auto again = MakeSchedule(random(), missed.size(), missed, cases_.size());
    for (FaultEvent& event : again) event.id += options_.events * static_cast<uint64_t>(i + 1);
    goes_on = RunBatches(runner, fleet, desk, again);
  }
  const LossTimes losses = fleet.losses();
  const auto status = fleet.status().latest();
  absl::MutexLock lock(&mutex_);
  // Those of further rounds are beyond what was asked for.
  const uint64_t ran = report_.Total().scheduled;
  report_.not_run = options_.events - std::min<uint64_t>(options_.events, ran);
  if (report_.not_run > 0) {
    findings_.Add(fmt::format("seed={} fleet={}: stopped, {} of {} events not run", options_.seed,
                              Name(options_.setup), report_.not_run, options_.events));
  }
  report_.ok = runner.endings().ok;
  report_.cancelled = runner.endings().cancelled;
  report_.expired = runner.endings().expired;
  report_.wrong = runner.endings().wrong;
  report_.losses = losses;
  report_.peaks = fleet.status().peaks();
  report_.handoffs = fleet.status().handoffs();
  AddResumes(status->resumes(), report_.resumes);
  return report_;
}

bool FleetRun::RunBatches(EventRunner& runner, Fleet& fleet, FrameDesk& desk,
                          const std::vector<FaultEvent>& events) {
  for (size_t at = 0; at < events.size(); at += kBatch) {
    const size_t end = std::min(events.size(), at + kBatch);
    runner.Settle();
    RunBatch(runner, fleet,
             {events.begin() + static_cast<ptrdiff_t>(at),
              events.begin() + static_cast<ptrdiff_t>(end)});
    desk.Release();
    std::fprintf(stderr, "%s: %zu of %zu events\n", std::string(Name(options_.setup)).c_str(), end,
                 events.size());
    if (!fleet.AwaitRest(kRestWithin)) return false;
  }
  return true;
}

void FleetRun::RunBatch(EventRunner& runner, Fleet& fleet, std::vector<FaultEvent> batch) {
  EventQueue queue(std::move(batch));
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < at_once_; ++i) {
    threads.emplace_back([&] {
      while (const std::optional<FaultEvent> event = queue.Take()) {
        RunEvent(runner, fleet, *event);
        queue.Done(*event);
      }
    });
  }
}

// A fault whose moment did not come, because the request was over, the worker was down or the
// request was at another one, is tried again with another request.
void FleetRun::RunEvent(EventRunner& runner, Fleet& fleet, FaultEvent event) {
  bool hit = false;
  for (int i = 0; i < kTries && !hit; ++i) {
    hit = runner.Run(event);
    if (LosesWorker(event.row)) fleet.AwaitUp(event.row.target);
    std::mt19937_64 random(event.seed);
    event.seed = random();
    event.request = random() % cases_.size();
  }
  absl::MutexLock lock(&mutex_);
  RowCount& count = report_.rows[event.row];
  ++count.scheduled;
  ++(hit ? count.hit : count.missed);
}

std::vector<FaultRow> FleetRun::RowsThatNeverCameAbout() const {
  absl::MutexLock lock(&mutex_);
  std::vector<FaultRow> rows;
  for (const auto& [row, count] : report_.rows) {
    if (count.hit == 0) rows.push_back(row);
  }
  return rows;
}

}  // namespace tandem
