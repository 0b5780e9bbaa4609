#include "tests/fault/fault_run.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

constexpr int32_t kVocabulary = 2043;  // of the sample model, without its special tokens

// A router and a unified worker that nothing happens to.
class QuietPair {
 public:
  QuietPair(const FaultRunOptions& options, FaultFindings& findings) {
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
                                    const std::vector<std::string>& arguments,
                                    FaultFindings& findings) {
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

}  // namespace

FleetReport FaultReport::All() const {
  FleetReport all;
  for (const auto& [setup, report] : setups) all.Add(report);
  return all;
}

v1::ResumeUse FaultReport::Resumes(bool slow) const {
  FleetReport some;
  for (const auto& [setup, report] : setups) {
    if (IsSlow(setup) == slow) some.Add(report);
  }
  return some.resumes;
}

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
  RunSetups();
  CheckRows();
  absl::MutexLock lock(&mutex_);
  report_.options = options_;
  report_.found = findings_.all();
  report_.seconds = ToMilliseconds(std::chrono::steady_clock::now() - began) / 1000;
  return report_;
}

size_t FaultRun::EventsOf(FaultSetup setup) const {
  const auto part = [this](double share) {
    return static_cast<size_t>(share * static_cast<double>(options_.events));
  };
  const size_t tight = part(options_.tight_share);
  const size_t shm = part(options_.shm_share);
  const size_t ipc = part(options_.ipc_share);
  switch (setup) {
    case FaultSetup::kTcp:
      return options_.events - std::min(options_.events, tight + shm + ipc);
    case FaultSetup::kTcpTight:
      return tight;
    case FaultSetup::kShm:
      return shm - shm / 2;
    case FaultSetup::kShmSlow:
      return shm / 2;
    case FaultSetup::kIpc:
      return ipc - ipc / 2;
    case FaultSetup::kIpcSlow:
      return ipc / 2;
  }
  return 0;
}

void FaultRun::RunSetups() {
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < options_.setups; ++i) {
    threads.emplace_back([this, &next] {
      for (size_t at = next++; at < std::size(kFaultSetups); at = next++) {
        RunFleets(kFaultSetups[at]);
      }
    });
  }
}

void FaultRun::RunFleets(FaultSetup setup) {
  const size_t events = EventsOf(setup);
  const uint64_t seed = options_.seed * std::size(kFaultSetups) + static_cast<uint64_t>(setup);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < options_.fleets; ++i) {
    const size_t share = events * (i + 1) / options_.fleets - events * i / options_.fleets;
    if (share == 0) continue;
    threads.emplace_back([=, this] {
      FleetRun run({.setup = setup,
                    .binary = options_.binary,
                    .model = options_.model,
                    .seed = seed + (uint64_t{i} << 32),
                    .events = share,
                    .at_once = options_.at_once,
                    .only = options_.only},
                   cases_, findings_);
      const FleetReport report = run.Run();
      absl::MutexLock lock(&mutex_);
      report_.setups[setup].Add(report);
    });
  }
}

// A row that was scheduled and never came about shows nothing.
void FaultRun::CheckRows() {
  absl::MutexLock lock(&mutex_);
  const FleetReport all = report_.All();
  uint64_t left_while_decoding = 0;
  for (const auto& [row, count] : all.rows) {
    const bool left = row.kind == FaultKind::kLeave && row.moment == Moment::kDecoding;
    if (left) left_while_decoding += count.hit;
  }
  if (left_while_decoding > 0 && all.resumes.migrated() == 0) {
    findings_.Add(fmt::format("{} workers left while they decoded, and no request migrated",
                              left_while_decoding));
  }
  for (const auto& [setup, report] : report_.setups) {
    for (const auto& [row, count] : report.rows) {
      if (count.hit > 0) continue;
      findings_.Add(fmt::format("fleet={}: row \"{}\" never came about ({} events)", Name(setup),
                                Name(row), count.scheduled));
    }
  }
}

}  // namespace tandem
