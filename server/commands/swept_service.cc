#include "server/commands/swept_service.h"

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/commands/client.h"

namespace tandem {
namespace {

// Loading weights and measuring steps at start can take long.
constexpr std::chrono::minutes kLongestStart(10);
constexpr std::chrono::seconds kPollTimeout(10);
constexpr std::chrono::seconds kLongestEnd(30);

}  // namespace

absl::StatusOr<std::unique_ptr<SweptService>> SweptService::Start(
    const loadgen::SweepPlan& plan, const loadgen::SweepStrategy& strategy) {
  std::vector<std::string> arguments = {"up",
                                        "--port=0",
                                        "--drain-seconds=1",
                                        "--policy=" + strategy.policy,
                                        fmt::format("--prefill={}", strategy.prefill),
                                        fmt::format("--decode={}", strategy.decode),
                                        fmt::format("--unified={}", strategy.unified)};
  arguments.insert(arguments.end(), plan.arguments.begin(), plan.arguments.end());
  ASSIGN_OR_RETURN(ChildProcess up, ChildProcess::Start(arguments));
  std::unique_ptr<SweptService> service(new SweptService(std::move(up)));
  service->address_ = service->up_.TakeReadyLine();
  if (service->address_.empty()) {
    return FailedPrecondition("the service for {} could not start: {}", strategy.name,
                              service->up_.failure());
  }
  RETURN_IF_ERROR(service->AwaitWorkers(strategy.workers()));
  return service;
}

SweptService::~SweptService() {
  up_.Signal(SIGTERM);
  waitpid(up_.pid(), nullptr, 0);
  ReapAllChildren(kLongestEnd);
}

// Waits until all workers are ready: one that still starts would get less than its share of the
// first requests.
absl::Status SweptService::AwaitWorkers(int count) const {
  Client client(address_);
  const auto deadline = std::chrono::steady_clock::now() + kLongestStart;
  while (std::chrono::steady_clock::now() < deadline) {
    ASSIGN_OR_RETURN(const v1::GetStatusResponse status, client.GetStatus(kPollTimeout));
    int ready = 0;
    for (const v1::WorkerStatus& worker : status.workers()) {
      const v1::WorkerLoad& load = worker.load();
      if (worker.alive() && load.not_ready().empty() && !load.starting()) ++ready;
    }
    if (ready == count) return absl::OkStatus();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return Unavailable("not all of the {} workers were ready within {} minutes", count,
                     kLongestStart.count());
}

}  // namespace tandem
