#include "tests/fault/fault_fleet.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

// While one is down the other serves.
constexpr int kWorkersPerRole = 2;

// What is not at rest, for a person; empty when all is.
std::string Unrest(const v1::GetStatusResponse& status, size_t num_workers) {
  std::string unrest;
  if (status.requests_in_flight() != 0) {
    unrest += fmt::format(" in_flight={}", status.requests_in_flight());
  }
  if (static_cast<size_t>(status.workers_size()) != num_workers) {
    unrest += fmt::format(" workers={}", status.workers_size());
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::HandoffUse& handoffs = worker.load().handoffs();
    uint64_t bytes_in_flight = 0;
    for (const v1::LinkStatus& link : worker.load().links())
      bytes_in_flight += link.bytes_in_flight();
    const bool rests = worker.alive() && worker.load().not_ready().empty() &&
                       BlocksInUse(worker) == 0 && worker.load().running() == 0 &&
                       worker.load().waiting() == 0 && handoffs.sending() == 0 &&
                       handoffs.reservations() == 0 && handoffs.waiting_reservations() == 0 &&
                       bytes_in_flight == 0;
    if (rests) continue;
    unrest += fmt::format(
        " [{} alive={} not_ready=\"{}\" blocks={} running={} waiting={} sending={} reservations={} "
        "waiting_reservations={} bytes_in_flight={}]",
        worker.name(), worker.alive(), worker.load().not_ready(), BlocksInUse(worker),
        worker.load().running(), worker.load().waiting(), handoffs.sending(),
        handoffs.reservations(), handoffs.waiting_reservations(), bytes_in_flight);
  }
  return unrest;
}

}  // namespace

Fleet::Fleet(FleetOptions options, FaultFindings& findings)
    : options_(std::move(options)), findings_(findings) {
  StartRouter();
  for (const FaultTarget role :
       {FaultTarget::kPrefill, FaultTarget::kDecode, FaultTarget::kUnified}) {
    for (int i = 0; i < kWorkersPerRole; ++i) AddMember(role);
  }
}

void Fleet::StartRouter() {
  std::vector<std::string> arguments = {"router", "--port=0", "--model=" + options_.model,
                                        "--canary-seconds=0", "--log-level=error"};
  arguments.insert(arguments.end(), options_.router_flags.begin(), options_.router_flags.end());
  auto process = ChildProcess::Start(arguments, options_.binary);
  if (!process.ok()) return findings_.Add(process.status().ToString());
  router_ = process->TakeReadyLine();
  router_process_ = *std::move(process);
  status_ = std::make_unique<StatusWatch>(router_);
}

void Fleet::AddMember(FaultTarget role) {
  if (status_ == nullptr) return;  // no router: found already
  const std::string name = fmt::format("{}-{}", Name(role), members(role).size());
  FrameProxy* proxy = nullptr;
  if (role == FaultTarget::kDecode && TransportOf(options_.setup) == "tcp") {
    auto opened = FrameProxy::Open();
    if (!opened.ok()) return findings_.Add(opened.status().ToString());
    proxy = proxies_.emplace(name, *std::move(opened)).first->second.get();
  }
  members_.push_back(std::make_unique<FleetMember>(role, name,
                                                   FleetMember::Context{.options = options_,
                                                                        .router = router_,
                                                                        .status = *status_,
                                                                        .findings = findings_,
                                                                        .proxy = proxy}));
}

Fleet::~Fleet() {
  members_.clear();
  status_.reset();
  if (!router_process_) return;
  router_process_->Signal(SIGKILL);
  waitpid(router_process_->pid(), nullptr, 0);
}

bool Fleet::AwaitUp(std::optional<FaultTarget> role) {
  const std::vector<FleetMember*> awaited = members(role);
  return !awaited.empty() && std::all_of(awaited.begin(), awaited.end(), [](const auto* member) {
    return member->AwaitUp(kFleetPatience);
  });
}

std::vector<FrameProxy*> Fleet::proxies() const {
  std::vector<FrameProxy*> all;
  for (const auto& [name, proxy] : proxies_) all.push_back(proxy.get());
  return all;
}

std::vector<FleetMember*> Fleet::members(std::optional<FaultTarget> role) const {
  std::vector<FleetMember*> some;
  for (const auto& member : members_) {
    if (!role || member->role() == *role) some.push_back(member.get());
  }
  return some;
}

bool Fleet::AwaitRest(Duration patience) {
  if (!AwaitUp()) {
    findings_.Add("a worker did not come back");
    return false;
  }
  const size_t num_workers = members_.size();
  const auto rests = [num_workers](const auto& status) {
    return Unrest(status, num_workers).empty();
  };
  if (status_->AwaitReported(rests, patience)) return true;
  findings_.Add("not at rest:" + Unrest(*status_->latest(), num_workers));
  return false;
}

LossTimes Fleet::losses() const {
  LossTimes all;
  for (const auto& member : members_) {
    all.Add(member->losses());
  }
  return all;
}

}  // namespace tandem
