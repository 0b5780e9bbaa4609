#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/commands/child_process.h"
#include "server/commands/client.h"
#include "server/commands/generation.h"
#include "tests/support/tree.h"

namespace tandem {

// A port of loopback on which nothing listens, for a program that cannot choose one by itself.
uint16_t FreePort();

struct TestClusterOptions {
  std::string binary = DaemonBinary();
  std::string model = "models/sample";  // relative to the root of the tree; empty: none
  int prefill = 1;
  int decode = 1;
  int unified = 1;
  std::vector<std::string> router_flags;
  std::vector<std::string> worker_flags;
  std::vector<std::string> prefill_flags;  // of prefill workers, after worker_flags
  std::vector<std::string> decode_flags;   // of decode workers, likewise
  std::string log_level = "error";         // of all
  TlsFiles client_tls;                     // of client(): none: without TLS
};

// A real router and real workers on loopback, with the sample model unless another is named.
// Processes can be stopped, killed and started again by name ("router", "decode-0"). All waiting is
// for conditions seen through the public status, and fails the test after a minute.
class TestCluster {
 public:
  explicit TestCluster(TestClusterOptions options = {});
  // Kills what is left.
  ~TestCluster();

  Client& client() { return *client_; }
  const std::string& address() const { return address_; }
  pid_t pid(const std::string& name) const;

  // With SIGSTOP it stands still when this returns.
  void Signal(const std::string& name, int signal);
  // SIGKILL, and waits until it is gone.
  void Kill(const std::string& name);
  // SIGTERM, and waits until it is gone; its exit status, -1 when a signal ended it.
  int Terminate(const std::string& name);
  int AwaitExit(const std::string& name);
  // A new process under the same name, with `flags` besides those that it had; waits until the
  // router knows it.
  void Start(const std::string& name, const std::vector<std::string>& flags = {});

  // The same while the one of that name lives, which goes by `name`-before from now on.
  void StartBeside(const std::string& name);

  using Condition = std::function<bool(const v1::GetStatusResponse&)>;
  void WaitFor(const std::string& what, const Condition& condition);
  // Until nothing is in flight and no worker has a block in use.
  void WaitUntilIdle();

 private:
  ChildProcess StartTandem(const std::vector<std::string>& arguments) const;
  std::vector<std::string> ArgumentsOf(const std::string& name) const;

  const TestClusterOptions options_;
  std::string address_;
  std::unique_ptr<Client> client_;
  std::map<std::string, ChildProcess> processes_;
};

// The worker of that name, or null.
const v1::WorkerStatus* FindWorker(const v1::GetStatusResponse& status, const std::string& name);

// Blocks of sequences, reservations and copies: neither free nor idle in the prefix cache.
int32_t BlocksInUse(const v1::WorkerStatus& worker);

// A request of `prompt` with everything that a test usually sets.
v1::GenerateRequest TextRequest(const std::string& prompt, v1::Route route, int32_t max_tokens);

// What a request came to.
struct Outcome {
  absl::Status status;
  Generation generation;
};
Outcome Ask(Client& client, const v1::GenerateRequest& request,
            Client::Timeout timeout = std::chrono::minutes(1));

}  // namespace tandem
