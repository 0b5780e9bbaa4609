#include "tests/support/test_cluster.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/support/tree.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kTimeout(60);

std::vector<std::string> WorkerNames(const TestClusterOptions& options) {
  std::vector<std::string> names;
  const std::pair<const char*, int> roles[] = {
      {"prefill", options.prefill}, {"decode", options.decode}, {"unified", options.unified}};
  for (const auto& [role, count] : roles) {
    for (int i = 0; i < count; ++i) names.push_back(std::string(role) + "-" + std::to_string(i));
  }
  return names;
}

}  // namespace

uint16_t FreePort() {
  const auto listener = Listen("127.0.0.1", 0);
  EXPECT_TRUE(listener.ok()) << listener.status();
  return LocalPort(*listener);
}

TestCluster::TestCluster(TestClusterOptions options) : options_(std::move(options)) {
  ChildProcess router = StartTandem(ArgumentsOf("router"));
  address_ = router.TakeReadyLine();
  EXPECT_FALSE(address_.empty()) << "the router did not start";
  processes_.emplace("router", std::move(router));
  client_ = std::make_unique<Client>(address_, options_.client_tls);
  const std::vector<std::string> names = WorkerNames(options_);
  for (const std::string& name : names) processes_.emplace(name, StartTandem(ArgumentsOf(name)));
  for (const std::string& name : names) {
    EXPECT_FALSE(processes_.at(name).TakeReadyLine().empty()) << name << " did not start";
  }
  // Those that are still starting would get less than their share.
  WaitFor("every worker has started", [](const v1::GetStatusResponse& status) {
    return std::ranges::none_of(
        status.workers(), [](const v1::WorkerStatus& worker) { return worker.load().starting(); });
  });
}

TestCluster::~TestCluster() {
  for (const auto& [name, process] : processes_) {
    process.Signal(SIGKILL);
    waitpid(process.pid(), nullptr, 0);
  }
}

ChildProcess TestCluster::StartTandem(const std::vector<std::string>& arguments) const {
  auto process = ChildProcess::Start(arguments, options_.binary);
  EXPECT_TRUE(process.ok()) << process.status();
  return *std::move(process);
}

std::vector<std::string> TestCluster::ArgumentsOf(const std::string& name) const {
  std::vector<std::string> arguments;
  if (name == "router") {
    const std::string port = address_.empty() ? "0" : address_.substr(address_.rfind(':') + 1);
    arguments = {"router", "--port=" + port, "--heartbeat-ms=100", "--lease-ms=2000"};
    const auto tries = [](const std::string& flag) { return flag.starts_with("--canary-seconds"); };
    // Tests count requests, and those of the router itself would be among them.
    if (std::ranges::none_of(options_.router_flags, tries))
      arguments.push_back("--canary-seconds=0");
    arguments.insert(arguments.end(), options_.router_flags.begin(), options_.router_flags.end());
  } else {
    arguments = {"worker", "--role",      name.substr(0, name.rfind('-')),
                 "--name", name,          "--router",
                 address_, "--threads=1", "--check-invariants"};
    arguments.insert(arguments.end(), options_.worker_flags.begin(), options_.worker_flags.end());
    const auto measures = [](const std::string& flag) {
      return flag.starts_with("--profile-at-start");
    };
    // Tests start some hundred workers, few of which need to know what their steps take.
    if (std::ranges::none_of(options_.worker_flags, measures)) {
      arguments.push_back("--profile-at-start=off");
    }
    if (name.starts_with("prefill")) {
      arguments.insert(arguments.end(), options_.prefill_flags.begin(),
                       options_.prefill_flags.end());
    }
    if (name.starts_with("decode")) {
      arguments.insert(arguments.end(), options_.decode_flags.begin(), options_.decode_flags.end());
    }
  }
  if (!options_.model.empty()) {
    arguments.push_back("--model=" + TreePath(options_.model));
  }
  arguments.push_back("--log-level=" + options_.log_level);
  return arguments;
}

pid_t TestCluster::pid(const std::string& name) const { return processes_.at(name).pid(); }

void TestCluster::Signal(const std::string& name, int signal) {
  processes_.at(name).Signal(signal);
  if (signal != SIGSTOP) return;
  // It is sent, not done: a thread that runs on another core may still answer a call.
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(pid(name)), &info, WSTOPPED | WEXITED | WNOWAIT);
}

void TestCluster::Kill(const std::string& name) {
  Signal(name, SIGKILL);
  waitpid(pid(name), nullptr, 0);
  processes_.erase(name);
}

int TestCluster::Terminate(const std::string& name) {
  Signal(name, SIGTERM);
  return AwaitExit(name);
}

int TestCluster::AwaitExit(const std::string& name) {
  int status = 0;
  waitpid(pid(name), &status, 0);
  processes_.erase(name);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void TestCluster::Start(const std::string& name, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = ArgumentsOf(name);
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  ChildProcess process = StartTandem(arguments);
  EXPECT_FALSE(process.TakeReadyLine().empty()) << name << " did not start";
  const pid_t pid = process.pid();
  processes_.emplace(name, std::move(process));
  if (name == "router") return;
  WaitFor(name + " has started", [&name, pid](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* worker = FindWorker(status, name);
    return worker != nullptr && worker->pid() == pid && !worker->load().starting();
  });
}

void TestCluster::StartBeside(const std::string& name) {
  auto before = processes_.extract(name);
  before.key() = name + "-before";
  processes_.insert(std::move(before));
  Start(name);
}

void TestCluster::WaitFor(const std::string& what, const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    client_->WaitUntilConnected(kTimeout);  // the router may be starting again
    const auto status = client_->GetStatus(kTimeout);
    if (status.ok() && condition(*status)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto last = client_->GetStatus(kTimeout);
  FAIL() << "waited in vain: " << what << "\n"
         << (last.ok() ? last->DebugString() : last.status().ToString());
}

void TestCluster::WaitUntilIdle() {
  WaitFor("no block in use and nothing in flight", [](const v1::GetStatusResponse& status) {
    bool idle = status.requests_in_flight() == 0;
    for (const v1::WorkerStatus& worker : status.workers()) {
      idle = idle && BlocksInUse(worker) == 0;
    }
    return idle;
  });
}

const v1::WorkerStatus* FindWorker(const v1::GetStatusResponse& status, const std::string& name) {
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.name() == name) return &worker;
  }
  return nullptr;
}

int32_t BlocksInUse(const v1::WorkerStatus& worker) {
  return worker.load().total_blocks() - worker.load().free_blocks() -
         worker.load().kv().idle_blocks();
}

v1::GenerateRequest TextRequest(const std::string& prompt, v1::Route route, int32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text(prompt);
  request.set_route(route);
  request.set_max_tokens(max_tokens);
  request.set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0);
  return request;
}

Outcome Ask(Client& client, const v1::GenerateRequest& request, Client::Timeout timeout) {
  Outcome outcome;
  outcome.status = client.Generate(request, timeout, [&outcome](const v1::GenerateResponse& event) {
    outcome.generation.Add(event);
    return true;
  });
  return outcome;
}

}  // namespace tandem
