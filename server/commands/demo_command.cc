#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "server/commands/child_process.h"
#include "server/commands/client.h"
#include "server/commands/commands.h"
#include "server/commands/generation.h"
#include "server/commands/number_flag.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kDemoTimeout(60);
constexpr std::chrono::seconds kSettle(5);
constexpr double kMaxStagesErrorMs = 0.001;
constexpr int kMaxSequences = 4;  // The demo sends one request at a time.

struct DemoFlags {
  std::string model_dir = "models/sample";
  std::string device = "cpu";
  int32_t max_tokens = 64;
};

struct DemoCase {
  std::string prompt;
  float temperature;
  uint64_t seed;
};

// Counts the expectations that failed, and prints the result of each.
class Checks {
 public:
  void Expect(bool holds, const std::string& what) {
    fmt::print("  {} {}\n", holds ? "[ok]" : "[FAILED]", what);
    if (!holds) ++failed_;
  }
  int failed() const { return failed_; }

 private:
  int failed_ = 0;
};

v1::GenerateRequest MakeRequest(const DemoCase& demo, v1::Route route, int32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text(demo.prompt);
  request.set_max_tokens(max_tokens);
  request.set_route(route);
  request.mutable_sampling()->set_temperature(demo.temperature);
  request.mutable_sampling()->set_seed(demo.seed);
  return request;
}

// Streams one answer to the terminal; nothing when the request failed.
std::optional<Generation> Show(Client& client, const DemoCase& demo, v1::Route route,
                               int32_t max_tokens) {
  fmt::print("\n[{}] {}", Name(route), demo.prompt);
  Generation generation;
  const absl::Status status = client.Generate(MakeRequest(demo, route, max_tokens), kDemoTimeout,
                                              [&generation](const v1::GenerateResponse& event) {
                                                generation.Add(event);
                                                std::fwrite(event.chunk().text().data(), 1,
                                                            event.chunk().text().size(), stdout);
                                                std::fflush(stdout);
                                                return true;
                                              });
  fmt::print("\n");
  std::fflush(stdout);
  if (!status.ok()) {
    PrintError(status);
    return std::nullopt;
  }
  fmt::print("{}", StageTable(generation.choices[0].finish));
  return generation;
}

void CheckAnswer(const Generation& answer, v1::Route route, Checks& checks) {
  const v1::ChoiceFinish& finish = answer.choices[0].finish;
  checks.Expect(
      StagesErrorMs(finish.stages()) < kMaxStagesErrorMs && finish.stages().residual_ms() >= 0,
      "the stages add up to TTFT");
  if (route == v1::ROUTE_AUTO) return;
  checks.Expect(finish.route() == route, "it took the route asked for");
  const bool moved = finish.kv_bytes().raw() > 0 && finish.kv_bytes().wire() > 0;
  checks.Expect(moved == (route == v1::ROUTE_DISAGGREGATED),
                moved ? "its KV moved between the two processes" : "its KV stayed where it was");
}

void RunCase(Client& client, const DemoCase& demo, int32_t max_tokens, Checks& checks) {
  const std::string sampling =
      demo.temperature == 0 ? "greedy"
                            : fmt::format("temperature {}, seed {}", demo.temperature, demo.seed);
  fmt::print("\n=== \"{}\", {}\n", demo.prompt, sampling);
  std::optional<Generation> first;
  for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED, v1::ROUTE_AUTO}) {
    const auto answer = Show(client, demo, route, max_tokens);
    if (!answer) {
      checks.Expect(false, "the request ended well");
      continue;
    }
    CheckAnswer(*answer, route, checks);
    if (!first) {
      first = answer;
      continue;
    }
    checks.Expect(answer->choices[0].token_ids == first->choices[0].token_ids,
                  fmt::format("its {} token ids equal those of the first route",
                              answer->choices[0].token_ids.size()));
  }
}

// Expects that no request is in flight and that every KV block is free again. Waits a moment,
// because workers report with a delay.
void CheckNothingLeaks(Client& client, Checks& checks) {
  const auto deadline = std::chrono::steady_clock::now() + kSettle;
  bool all_free = false;
  while (!all_free && std::chrono::steady_clock::now() < deadline) {
    const auto status = client.GetStatus(kDemoTimeout);
    all_free = status.ok() && status->requests_in_flight() == 0;
    for (int i = 0; all_free && i < status->workers_size(); ++i) {
      const v1::WorkerStatus& worker = status->workers(i);
      all_free = worker.load().free_blocks() + worker.load().kv().idle_blocks() ==
                 worker.load().total_blocks();
    }
    if (!all_free) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  fmt::print("\n=== afterwards\n");
  checks.Expect(all_free,
                "every KV block of every worker is free again, or idle in its prefix cache");
}

// Ends the service and checks that no process of it is left: orphans would have become ours.
void CheckEndsClean(const ChildProcess& up, Checks& checks) {
  up.Signal(SIGTERM);
  int how = 0;
  waitpid(up.pid(), &how, 0);
  checks.Expect(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the service ended when asked to");
  checks.Expect(ReapAllChildren(kSettle), "no process is left behind");
}

// The flags of the demo's service, whose three workers share the device. Their numbers are given,
// because a GPU gets one unified worker by default, and the kernels are batch-invariant, because
// only those give a cached prompt the same tokens as one that is computed anew.
std::vector<std::string> UpArguments(const DemoFlags& flags) {
  return {"up",
          "--model=" + flags.model_dir,
          "--port=0",
          "--device=" + flags.device,
          "--prefill=1",
          "--decode=1",
          "--unified=1",
          "--batch-invariant",
          fmt::format("--max-sequences={}", kMaxSequences)};
}

int RunDemo(const DemoFlags& flags) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  fmt::print("Starting a router, a prefill, a decode and a unified worker on {}, device {} ...\n",
             flags.model_dir, flags.device);
  std::fflush(stdout);
  auto up = ChildProcess::Start(UpArguments(flags));
  if (!up.ok()) return PrintError(up.status());
  const std::string address = up->TakeReadyLine();
  if (address.empty()) {
    return PrintError(FailedPrecondition("the service could not start: {}", up->failure()));
  }
  Client client(address);
  Checks checks;
  const DemoCase cases[] = {
      {"It was a fine morning, and the ladies", 0, 0},
      {"\"My dear Jane,\" said her mother,", 0.8f, 7},
  };
  for (const DemoCase& demo : cases) RunCase(client, demo, flags.max_tokens, checks);
  CheckNothingLeaks(client, checks);
  CheckEndsClean(*up, checks);
  if (checks.failed() > 0) return PrintError(Internal("{} checks failed", checks.failed()));
  fmt::print("\nAll held.\n");
  return kExitOk;
}

}  // namespace

void AddDemoCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<DemoFlags>();
  CLI::App* demo = app.add_subcommand(
      "demo", "Serve the sample model in four processes, use each route, compare, and stop");
  demo->add_option("--model", flags->model_dir, "the model to serve")->capture_default_str();
  demo->add_option(
          "--device", flags->device,
          "where the workers compute: cpu, cpu-bf16, cpu-auto, or cuda:0 and so on; they share it")
      ->capture_default_str();
  demo->add_option("--max-tokens", flags->max_tokens, "of each answer")
      ->check(Positive())
      ->capture_default_str();
  demo->footer("Exit status 0 only if every check held. Example:\n  tandem demo --device cuda:0");
  demo->callback([flags, &chosen] { chosen = [flags] { return RunDemo(*flags); }; });
}

}  // namespace tandem
