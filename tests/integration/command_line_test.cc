// The binary as people and scripts use it.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/assembly/host_memory.h"
#include "server/commands/child_process.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"

namespace tandem::command_line_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

#if defined(__has_feature)
#define TANDEM_HAS_FEATURE(feature) __has_feature(feature)
#else
#define TANDEM_HAS_FEATURE(feature) 0
#endif
constexpr bool kSanitized =
    TANDEM_HAS_FEATURE(address_sanitizer) || TANDEM_HAS_FEATURE(thread_sanitizer);

class CommandLineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new TestCluster(); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  std::string Server() const { return " --server " + cluster_->address() + " "; }

  static TestCluster* cluster_;
};
TestCluster* CommandLineTest::cluster_ = nullptr;

TEST_F(CommandLineTest, GenerateJsonIsOneObject) {
  const CommandResult result = Shell(
      "generate 'It was a fine morning' --route disaggregated --max-tokens 8 --temperature 0.7 "
      "--seed 5 --n 2 --ignore-eos --json" +
      Server());
  ASSERT_EQ(result.exit_status, 0);
  const auto json = ParseJson(result.output);
  EXPECT_EQ(json["token_ids"].size(), 8u);
  EXPECT_EQ(json["route"], "disaggregated");
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["seed"], 5);
  EXPECT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["usage"]["completion_tokens"], 16);
  EXPECT_GT(json["kv_bytes"]["wire"], 0);
}

TEST_F(CommandLineTest, GeneratePrintsTheTextAndErrorsAreOneLine) {
  const CommandResult text =
      Shell("generate 'It was a fine' --max-tokens 4 --temperature 0" + Server());
  EXPECT_EQ(text.exit_status, 0);
  EXPECT_GT(text.output.size(), 1u);
  const CommandResult negative =
      Shell("generate hi --temperature -1" + Server() + "2>&1 >/dev/null");
  EXPECT_EQ(negative.exit_status, 1);
  EXPECT_THAT(negative.output, StartsWith("error: INVALID_ARGUMENT: temperature=-1"));
  EXPECT_EQ(std::count(negative.output.begin(), negative.output.end(), '\n'), 1);
  const CommandResult bytes =
      Shell("generate \"$(printf 'a\\377')\"" + Server() + "2>&1 >/dev/null");
  EXPECT_EQ(bytes.exit_status, 1);
  EXPECT_THAT(bytes.output, HasSubstr("is not UTF-8"));
  const CommandResult usage = Shell("generate hi --route sideways 2>&1");
  EXPECT_EQ(usage.exit_status, 2);
  EXPECT_EQ(Shell("generate hi --seed -3 2>/dev/null").exit_status, 2);
}

TEST_F(CommandLineTest, TokenizeAgreesWithTheServer) {
  const CommandResult local = Shell("tokenize 'My dear Jane' --model " + SampleModel());
  const CommandResult remote = Shell("tokenize 'My dear Jane'" + Server());
  EXPECT_EQ(local.exit_status, 0);
  EXPECT_EQ(local.output, remote.output);
  const CommandResult generated =
      Shell("generate --token-ids " + local.output.substr(0, local.output.size() - 1) +
            " --max-tokens 3 --json" + Server());
  EXPECT_EQ(generated.exit_status, 0);
}

TEST_F(CommandLineTest, ChatTemplatePrintsThePromptAndItsTokens) {
  const std::string messages =
      R"(echo '[{"role": "user", "content": "My dear <|begin_of_text|>Jane"}]' | )";
  const auto run = [&](const std::string& flags) {
    return Shell("chat-template --model " + SampleModel() + " " + flags, messages);
  };
  EXPECT_EQ(run("").output, "<|begin_of_text|>My dear <|begin_of_text|>Jane\n");
  EXPECT_EQ(run("--parts").output,
            "template \"<|begin_of_text|>\"\ninput    \"My dear <|begin_of_text|>Jane\"\n");
  const CommandResult ids = run("--token-ids");
  EXPECT_EQ(ids.exit_status, 0);
  // The user's text has no control token, so it is longer than it would be with one.
  const CommandResult plain =
      Shell("tokenize 'My dear <|begin_of_text|>Jane' --model " + SampleModel());
  EXPECT_GT(std::count(ids.output.begin(), ids.output.end(), ','),
            std::count(plain.output.begin(), plain.output.end(), ','));
}

TEST_F(CommandLineTest, FlagsMayStandInAFile) {
  const std::string path = testing::TempDir() + "tandem_flags_" + std::to_string(getpid());
  std::ofstream(path) << "[generate]\nserver = \"" << cluster_->address()
                      << "\"\nmax-tokens = 3\nignore-eos = true\njson = true\n";
  for (const std::string& arguments :
       {"generate hi --config " + path, "--config " + path + " generate hi"}) {
    const CommandResult result = Shell(arguments);
    ASSERT_EQ(result.exit_status, 0) << arguments;
    EXPECT_EQ(ParseJson(result.output)["token_ids"].size(), 3u);
  }
  std::remove(path.c_str());
  EXPECT_EQ(Shell("generate hi --config /nowhere 2>/dev/null").exit_status, 2);
}

TEST_F(CommandLineTest, StatusKnowsWhetherItCanServe) {
  const CommandResult json = Shell("status --json" + Server());
  EXPECT_EQ(json.exit_status, 0);
  EXPECT_EQ(ParseJson(json.output)["workers"].size(), 3u);
  EXPECT_EQ(Shell("status" + Server()).exit_status, 0);
  EXPECT_EQ(Shell("status --server 127.0.0.1:1 2>/dev/null").exit_status, 1);
}

TEST_F(CommandLineTest, ARequestIsExplainedAfterItsEnd) {
  ASSERT_EQ(Shell("generate 'It was a fine morning' --request-id explained --max-tokens 8 "
                  "--ignore-eos --route disaggregated" +
                  Server())
                .exit_status,
            0);
  const CommandResult text = Shell("explain explained" + Server());
  EXPECT_EQ(text.exit_status, 0);
  EXPECT_THAT(text.output,
              AllOf(StartsWith("request explained of "), HasSubstr("  * prefill-0 -> decode-0"),
                    HasSubstr("ended: OK on prefill-0 -> decode-0, 8 output tokens"),
                    HasSubstr("to the first token: "), Not(HasSubstr("\x1b"))));
  const CommandResult json = Shell("explain explained --json" + Server());
  ASSERT_EQ(json.exit_status, 0);
  const auto explained = ParseJson(json.output)["requests"][0];
  EXPECT_EQ(explained["outcome"]["finish"]["completion_tokens"], 8);
  EXPECT_EQ(explained["decisions"][0]["cause"], "arrival");
  EXPECT_GT(explained["outcome"]["finish"]["stages"]["ttft_ms"], 0);
  const CommandResult list = Shell("explain --last 2 --router " + cluster_->address());
  EXPECT_EQ(list.exit_status, 0);
  EXPECT_THAT(list.output, HasSubstr("\nexplained "));
  const CommandResult unknown = Shell("explain nobody" + Server() + "2>&1 >/dev/null");
  EXPECT_EQ(unknown.exit_status, 1);
  EXPECT_THAT(unknown.output, StartsWith("error: NOT_FOUND: request_id=nobody"));
  const CommandResult both = Shell("explain explained --last 2" + Server() + "2>&1 >/dev/null");
  EXPECT_EQ(both.exit_status, 1);
  EXPECT_THAT(both.output, HasSubstr("either the id of a request or --last N"));
  const CommandResult none = Shell("explain --last 0" + Server() + "2>&1 >/dev/null");
  EXPECT_THAT(none.output, HasSubstr("latest=0 must be in [1, 256]"));
}

TEST_F(CommandLineTest, ChoicesAndBeamsHaveFlags) {
  const CommandResult best = Shell(
      "generate 'It was a fine' --max-tokens 6 --n 2 --best-of 4 --seed 3 --tenant alice "
      "--cache-salt s1 --session c1 --json" +
      Server());
  ASSERT_EQ(best.exit_status, 0);
  const auto ranked = ParseJson(best.output);
  ASSERT_EQ(ranked["choices"].size(), 2u);
  EXPECT_GE(ranked["choices"][0]["cumulative_logprob"], ranked["choices"][1]["cumulative_logprob"]);
  EXPECT_EQ(ranked["usage"]["completion_tokens"], 24);
  const CommandResult search = Shell(
      "generate 'It was a fine' --max-tokens 6 --n 3 --beam-width 4 --length-penalty 0.5 "
      "--early-stopping first --json" +
      Server());
  ASSERT_EQ(search.exit_status, 0);
  const auto beams = ParseJson(search.output);
  ASSERT_EQ(beams["choices"].size(), 3u);
  EXPECT_GE(beams["choices"][0]["score"], beams["choices"][2]["score"]);
  EXPECT_TRUE(beams["usage"].contains("cached_tokens"));
  EXPECT_TRUE(beams["usage"].contains("preemptions"));
  const CommandResult bad = Shell("generate hi --beam-width 1" + Server() + "2>&1 >/dev/null");
  EXPECT_EQ(bad.exit_status, 1);
  EXPECT_THAT(bad.output, StartsWith("error: INVALID_ARGUMENT: beam_width=1 must be in [2, 16]"));
  EXPECT_EQ(Shell("generate hi --length-penalty 1 2>/dev/null").exit_status, 2);
  EXPECT_EQ(Shell("generate hi --beam-width 4 --early-stopping soon 2>/dev/null").exit_status, 2);
}

// The word of that number on the line of `worker` in what `status --blocks` prints.
int BlockColumn(const std::string& table, const std::string& worker, int column) {
  std::istringstream line(table.substr(table.rfind("\n" + worker) + 1));
  std::string word;
  for (int i = 0; i <= column; ++i) line >> word;
  return std::stoi(word);
}

TEST_F(CommandLineTest, StatusSaysWhereTheBlocksAre) {
  constexpr int kPool = 1, kFree = 2, kCached = 3, kIdle = 4, kShared = 5;
  v1::GenerateRequest request = TextRequest("", v1::ROUTE_UNIFIED, 1500);
  for (int32_t id = 0; id < 200; ++id) request.mutable_token_ids()->add_ids(300 + id);
  request.set_n(4);
  // The report is late by up to a heartbeat.
  const auto wait_for = [](const std::function<bool(const v1::KvUse&)>& holds) {
    cluster_->WaitFor("such blocks", [&holds](const v1::GetStatusResponse& status) {
      const v1::WorkerStatus* worker = FindWorker(status, "unified-0");
      return worker != nullptr && holds(worker->load().kv());
    });
  };
  std::string running;
  cluster_->client()
      .Generate(request, Client::kNoTimeout,
                [&](const v1::GenerateResponse&) {
                  wait_for([](const v1::KvUse& kv) { return kv.shared_blocks() > 0; });
                  running = Shell("status --blocks" + Server()).output;
                  return false;
                })
      .IgnoreError();
  EXPECT_GE(BlockColumn(running, "unified-0", kShared), 200 / 16) << running;
  cluster_->WaitUntilIdle();
  const std::string rest = Shell("status --blocks" + Server()).output;
  EXPECT_EQ(BlockColumn(rest, "unified-0", kShared), 0) << rest;
  EXPECT_GE(BlockColumn(rest, "unified-0", kCached), 200 / 16) << rest;
  EXPECT_EQ(BlockColumn(rest, "unified-0", kCached), BlockColumn(rest, "unified-0", kIdle)) << rest;
  EXPECT_EQ(BlockColumn(rest, "unified-0", kFree) + BlockColumn(rest, "unified-0", kIdle),
            BlockColumn(rest, "unified-0", kPool))
      << rest;
  const auto json = ParseJson(Shell("status --json" + Server()).output);
  for (const auto& worker : json["workers"]) EXPECT_TRUE(worker["kv"].contains("idle_blocks"));
}

TEST_F(CommandLineTest, BadStartsSayWhatIsWrong) {
  const CommandResult model =
      Shell("worker --role unified --model /nowhere --router 127.0.0.1:1 --log-level off 2>&1");
  EXPECT_EQ(model.exit_status, 1);
  EXPECT_THAT(model.output, StartsWith("error: NOT_FOUND: /nowhere"));
  const CommandResult pool = Shell(std::string("worker --role unified --router 127.0.0.1:1 "
                                               "--kv-tokens 3 --log-level off --model ") +
                                   SampleModel() + " 2>&1");
  EXPECT_EQ(pool.exit_status, 1);
  EXPECT_THAT(pool.output, HasSubstr("--kv-tokens"));
  const CommandResult progress = Shell(std::string("worker --role unified --router 127.0.0.1:1 "
                                                   "--progress-seconds 0.2 --log-level off "
                                                   "--model ") +
                                       SampleModel() + " 2>&1");
  EXPECT_EQ(progress.exit_status, 1);
  EXPECT_THAT(progress.output, HasSubstr("--progress-seconds 0.2: give at least 1, or off"));
  EXPECT_EQ(
      Shell("worker --role unified --model x --router 127.0.0.1:1 --schedule soon 2>/dev/null")
          .exit_status,
      2);
  const std::string port = cluster_->address().substr(cluster_->address().rfind(':') + 1);
  const CommandResult taken =
      Shell("router --log-level off --port " + port + " --model " + SampleModel() + " 2>/dev/null");
  EXPECT_EQ(taken.exit_status, 1);
  EXPECT_EQ(Shell("up --prefill 1 --decode 0 --unified 0 --model x 2>/dev/null").exit_status, 1);
}

TEST_F(CommandLineTest, UpSaysOnOneLineWhyItCannotStart) {
  for (const auto& [flags, said] :
       {std::pair(std::string("--model /nowhere"), "/nowhere"),
        std::pair("--kv-tokens 3 --port 0 --model " + SampleModel(), "--kv-tokens")}) {
    const CommandResult failed = Shell("up --prefill 2 --decode 2 " + flags + " 2>&1");
    EXPECT_EQ(failed.exit_status, 1);
    EXPECT_EQ(std::count(failed.output.begin(), failed.output.end(), '\n'), 1) << failed.output;
    EXPECT_THAT(failed.output, AllOf(StartsWith("error: "), HasSubstr(said)));
  }
}

TEST_F(CommandLineTest, AStartWithoutDescriptorsSaysSo) {
  const std::string worker = "worker --role unified --router 127.0.0.1:1 --log-level off --model " +
                             SampleModel() + " 2>&1";
  const std::string router = "router --port 0 --model " + SampleModel() + " 2>&1";
  for (const int descriptors : {20, 32, 48}) {
    for (const std::string& command : {worker, router}) {
      const CommandResult refused = Shell(command, fmt::format("ulimit -n {};", descriptors));
      EXPECT_EQ(refused.exit_status, 1) << refused.output;
      EXPECT_THAT(refused.output, StartsWith(fmt::format("error: RESOURCE_EXHAUSTED: this process "
                                                         "may open {} files",
                                                         descriptors)));
    }
  }
}

TEST_F(CommandLineTest, AStartWithoutMemorySaysSo) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes terabytes of address space";
  const std::string worker = "worker --role unified --router 127.0.0.1:1 --log-level off --model " +
                             SampleModel() + " 2>&1";
  for (const int megabytes : {200, 300}) {
    const CommandResult refused =
        Shell(worker, fmt::format("ulimit -v {}; timeout 60", megabytes * 1000));
    EXPECT_EQ(refused.exit_status, 1) << megabytes << " MB: " << refused.output;
    EXPECT_THAT(refused.output, StartsWith("error: RESOURCE_EXHAUSTED: ")) << megabytes << " MB";
  }
}

// Whether one of the threads of `pid` has that name.
bool HasThread(pid_t pid, const std::string& name) {
  std::error_code error;
  const std::filesystem::path tasks = fmt::format("/proc/{}/task", pid);
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm == name) return true;
  }
  return false;
}

TEST_F(CommandLineTest, AWorkerThatNoRouterKnowsEndsWhenItIsToldTo) {
  auto worker = ChildProcess::Start({"worker", "--role=unified", "--router=127.0.0.1:1",
                                     "--log-level=off", "--model=" + SampleModel()},
                                    DaemonBinary());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto wait_until = [deadline](const std::function<bool()>& over) {
    while (!over() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  wait_until([&worker] { return HasThread(worker->pid(), "heartbeat"); });
  worker->Signal(SIGTERM);
  int how = 0;
  pid_t ended = 0;
  wait_until([&] { return (ended = waitpid(worker->pid(), &how, WNOHANG)) != 0; });
  EXPECT_EQ(ended, worker->pid());
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  if (ended == 0) kill(worker->pid(), SIGKILL);
}

// localhost may have a second address, ::1, where no router listens.
TEST_F(CommandLineTest, AWorkerRegistersWithTheRoutersThatANameStandsFor) {
  const std::string port = cluster_->address().substr(cluster_->address().rfind(':') + 1);
  auto worker = ChildProcess::Start(
      {"worker", "--role=unified", "--name=by-name", "--router=dns:localhost:" + port,
       "--profile-at-start=off", "--log-level=off", "--model=" + SampleModel()},
      DaemonBinary());
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_NE(worker->TakeReadyLine(), "") << worker->failure();
  EXPECT_THAT(Shell("status" + Server()).output, HasSubstr("by-name"));
  worker->Signal(SIGTERM);
  int how = 0;
  EXPECT_EQ(waitpid(worker->pid(), &how, 0), worker->pid());
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

TEST_F(CommandLineTest, AWorkerWithoutItsSharedMemorySaysHowToGoOn) {
  // No file of more than half a megabyte: shared memory is one.
  const std::string limited = "ulimit -f 1024;";
  const std::string worker = " --kv-buffer-bytes=12MiB --log-level off --model " + SampleModel() +
                             " --router 127.0.0.1:1 2>&1";
  const CommandResult relay =
      Shell("worker --role prefill --kv-transport=shm,tcp" + worker, limited);
  EXPECT_EQ(relay.exit_status, 1);
  EXPECT_THAT(relay.output, StartsWith("error: UNAVAILABLE: shared memory for KV: "));
  EXPECT_THAT(relay.output, HasSubstr("--kv-buffer-bytes=12582912"));
  EXPECT_THAT(relay.output, HasSubstr("--kv-transport=tcp"));
  const CommandResult sharing =
      Shell("worker --role prefill --kv-transport=ipc,tcp" + worker, limited);
  EXPECT_EQ(sharing.exit_status, 1);
  EXPECT_THAT(sharing.output, StartsWith("error: RESOURCE_EXHAUSTED: KV pool of "));
  EXPECT_THAT(sharing.output, HasSubstr("File too large"));
  EXPECT_THAT(sharing.output, HasSubstr("--kv-transport=shm,tcp"));
}

TEST_F(CommandLineTest, SizesBelowZeroAreRefusedWithTheirValue) {
  const std::string worker = " worker --role decode --router 127.0.0.1:1 --model x";
  for (const char* flag :
       {"--kv-bandwidth", "--kv-buffer-bytes", "--kv-bytes", "--host-kv-bytes"}) {
    for (const char* value : {"-5", "-5MB"}) {
      const CommandResult refused = Shell(fmt::format("{} {}={} 2>&1", worker, flag, value));
      EXPECT_EQ(refused.exit_status, 2) << flag;
      EXPECT_THAT(refused.output, HasSubstr(fmt::format("{}: {} is no size", flag, value)));
    }
  }
  const CommandResult router = Shell("router --model x --stream-buffer-bytes=-1 2>&1");
  EXPECT_EQ(router.exit_status, 2);
  EXPECT_THAT(router.output, HasSubstr("--stream-buffer-bytes: -1 is no size"));
}

TEST_F(CommandLineTest, NumbersThatCannotBeAreRefusedWithTheirValue) {
  const CommandResult negative = Shell("router --model x --max-resumes -1 2>&1");
  EXPECT_EQ(negative.exit_status, 2);
  EXPECT_THAT(negative.output, StartsWith("--max-resumes: -1 is no number from 0 on\n"));
  const CommandResult none = Shell("router --model x --max-in-flight 0 2>&1");
  EXPECT_EQ(none.exit_status, 2);
  EXPECT_THAT(none.output, StartsWith("--max-in-flight: 0 is no number above 0\n"));
  const CommandResult lease = Shell("router --model x --lease-ms 999 --heartbeat-ms 500 2>&1");
  EXPECT_EQ(lease.exit_status, 1);
  EXPECT_THAT(lease.output, AllOf(HasSubstr("--lease-ms 999"), HasSubstr("--heartbeat-ms 500")));
}

TEST_F(CommandLineTest, AddressesThatNobodyReachesAreRefused) {
  const std::string worker = "worker --role decode --log-level off --model x ";
  for (const auto& [flags, said] : {
           std::pair("--router 127.0.0.1:1 --host 0.0.0.0", "--host 0.0.0.0: nobody can connect"),
           std::pair("--router 127.0.0.1:1 --advertise ::", "--advertise ::: nobody can connect"),
           std::pair("--router nonsense", "--router: address \"nonsense\""),
           std::pair("--router dns:routers", "--router: \"dns:routers\": must be dns:NAME:PORT"),
           std::pair("--router 127.0.0.1:1 --advertise-data 10.0.0.2:7000",
                     "--advertise-data: endpoint \"10.0.0.2:7000\""),
           std::pair("--router 127.0.0.1:1 --advertise-data shm:x", "\"shm\": only tcp"),
           std::pair("--router 127.0.0.1:1 --advertise-data tcp:here", "address \"here\""),
       }) {
    const CommandResult refused = Shell(worker + flags + " 2>&1");
    EXPECT_EQ(refused.exit_status, 1) << flags;
    EXPECT_THAT(refused.output, HasSubstr(said)) << flags;
  }
}

// A file may have sections of several commands, but none with a flag that its command does not
// have.
TEST_F(CommandLineTest, AFileOfFlagsWithAnUnknownFlagIsRefused) {
  const std::string path = testing::TempDir() + "/unknown_flag.ini";
  for (const auto& [text, said] : {
           std::pair(
               "[worker]\nkv-transprot = tcp\n",
               "line 2: [worker] has no flag \"kv-transprot\": did you mean \"kv-transport\"?"),
           std::pair("[router]\nmodel = /nowhere\n[wroker]\nrole = decode\n",
                     "line 3: there is no section [wroker]: did you mean \"worker\"?"),
           std::pair("[router]\nmodel = /nowhere\n[worker]\nrole = decode\n", "NOT_FOUND"),
       }) {
    std::ofstream(path) << text;
    const CommandResult refused = Shell("router --log-level off --config " + path + " 2>&1");
    EXPECT_NE(refused.exit_status, 0) << text;
    EXPECT_THAT(refused.output, HasSubstr(said)) << text;
  }
}

TEST_F(CommandLineTest, ATransportUnderAnotherNameIsToldItsOwn) {
  const CommandResult refused =
      Shell("worker --role decode --router 127.0.0.1:1 --model x --kv-transport=cuda_ipc 2>&1");
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_THAT(refused.output, HasSubstr("\"cuda_ipc\" is called ipc here"));
}

// Together: each part would fit by itself.
TEST_F(CommandLineTest, AWorkerThatWouldTakeMoreMemoryThanThereIsSaysOfWhat) {
  const int64_t limit = HostMemoryLimit();
  const CommandResult refused = Shell(fmt::format(
      "worker --role unified --router 127.0.0.1:1 --log-level off --model {} --kv-bytes={} "
      "--host-kv-bytes={} 2>&1",
      SampleModel(), limit / 10 * 6, limit / 10 * 6));
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.output, StartsWith("error: RESOURCE_EXHAUSTED: this worker would take "));
  EXPECT_THAT(refused.output, HasSubstr("--host-kv-bytes"));
}

// The child of `parent` whose command line says `word`, or 0.
pid_t FindChild(pid_t parent, const std::string& word) {
  const std::string process = "/proc/" + std::to_string(parent);
  std::ifstream children(process + "/task/" + std::to_string(parent) + "/children");
  for (pid_t child = 0; children >> child;) {
    std::ifstream file("/proc/" + std::to_string(child) + "/cmdline");
    const std::string words((std::istreambuf_iterator<char>(file)), {});
    if (words.find(word) != std::string::npos) return child;
  }
  return 0;
}

// Kills that child of `up` and waits until one of a new pid has taken its place and serves.
void KillAndWaitForAnother(const ChildProcess& up, Client& client, const std::string& word) {
  const pid_t first = FindChild(up.pid(), word);
  ASSERT_GT(first, 0) << word;
  kill(first, SIGKILL);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < deadline) {
    client.WaitUntilConnected(std::chrono::seconds(30));
    const pid_t now = FindChild(up.pid(), word);
    const auto status = client.GetStatus(std::chrono::seconds(30));
    if (now > 0 && now != first && status.ok() && status->ready()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << word << " did not come back";
}

TEST(UpTest, RestartsWhatDiesAndLeavesNothingBehind) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans of `up` would become ours
  auto up = ChildProcess::Start({"up", "--model=" + SampleModel(), "--port=0", "--prefill=0",
                                 "--decode=0", "--log-level=off", "--threads=1"},
                                DaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  const std::string address = up->TakeReadyLine();
  ASSERT_FALSE(address.empty());
  Client client(address);
  using namespace std::string_literals;
  for (const std::string& word : {"--name=unified-0"s, "tandem\0router"s}) {
    ASSERT_NO_FATAL_FAILURE(KillAndWaitForAnother(*up, client, word));
  }
  const Outcome outcome = Ask(client, TextRequest("It was", v1::ROUTE_AUTO, 4));
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  up->Signal(SIGTERM);
  int how = 0;
  ASSERT_EQ(waitpid(up->pid(), &how, 0), up->pid());
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  EXPECT_TRUE(ReapAllChildren(std::chrono::seconds(30))) << "a process is left";
}

// The arguments of a process, as the kernel knows them.
std::vector<std::string> ArgumentsOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid));
  std::vector<std::string> arguments;
  for (std::string one; std::getline(file, one, '\0');) arguments.push_back(one);
  return arguments;
}

TEST(UpTest, RouterAndWorkersGetTheFlagsThatWereGivenAndNoOthers) {
  const std::string file = testing::TempDir() + "tandem_up_" + std::to_string(getpid());
  std::ofstream(file) << "[up]\nmax-choices = 2\nmax-waiting = 7\n";
  auto up = ChildProcess::Start(
      {"up", "--model=" + SampleModel(), "--port=0", "--prefill=0", "--decode=0", "--log-level=off",
       "--threads=1", "--policy=round-robin", "--answer-buffer-bytes=1MiB", "--max-streams=100",
       "--batch-invariant", "--config=" + file},
      DaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  const std::string address = up->TakeReadyLine();
  ASSERT_FALSE(address.empty());
  using namespace std::string_literals;
  const std::vector<std::string> router = ArgumentsOf(FindChild(up->pid(), "tandem\0router"s));
  const std::vector<std::string> worker = ArgumentsOf(FindChild(up->pid(), "--name=unified-0"));
  EXPECT_THAT(router, IsSupersetOf({"--policy=round-robin", "--answer-buffer-bytes=1048576",
                                    "--max-choices=2", "--max-streams=100"}));
  EXPECT_THAT(router,
              Not(Contains(AnyOf(StartsWith("--threads"), StartsWith("--max-waiting"),
                                 StartsWith("--batch-invariant"), StartsWith("--lease-ms")))));
  EXPECT_THAT(worker, IsSupersetOf({"--threads=1", "--max-waiting=7", "--batch-invariant=true",
                                    "--max-streams=100"}));
  EXPECT_THAT(worker, Not(Contains(AnyOf(StartsWith("--policy"), StartsWith("--max-choices"),
                                         StartsWith("--kv-tokens")))));
  Client client(address);
  v1::GenerateRequest request = TextRequest("It was", v1::ROUTE_AUTO, 4);
  request.set_n(3);
  const absl::Status refused = Ask(client, request).status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("n=3 must be in [1, 2]"));
  up->Signal(SIGTERM);
  int how = 0;
  EXPECT_EQ(waitpid(up->pid(), &how, 0), up->pid());
  std::remove(file.c_str());
}

TEST(UpTest, AFlagOfTheRouterThatCannotBeIsRefusedAtOnce) {
  const CommandResult predictor = Shell("up --model x --output-predictor oracle 2>&1");
  EXPECT_EQ(predictor.exit_status, 2);
  EXPECT_THAT(predictor.output, HasSubstr("--output-predictor"));
  const CommandResult policy = Shell("up --model x --policy best 2>&1");
  EXPECT_EQ(policy.exit_status, 2);
  EXPECT_THAT(policy.output, HasSubstr("--policy"));
  const std::string classic = "up --port 0 --policy classic --model " + SampleModel();
  const CommandResult without = Shell(classic + " 2>&1");
  EXPECT_EQ(without.exit_status, 1);
  EXPECT_THAT(without.output, HasSubstr("give --classic-parameters FILE"));
  const CommandResult missing = Shell(classic + " --classic-parameters /no/file 2>&1");
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_THAT(missing.output, HasSubstr("--classic-parameters=/no/file"));
  const CommandResult lease =
      Shell("up --port 0 --lease-ms 999 --heartbeat-ms 500 --model " + SampleModel() + " 2>&1");
  EXPECT_EQ(lease.exit_status, 1);
  EXPECT_THAT(lease.output, AllOf(HasSubstr("--lease-ms 999"), HasSubstr("--heartbeat-ms 500")));
}

TEST(UpTest, NothingOutlivesAKilledSupervisor) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto up = ChildProcess::Start({"up", "--model=" + SampleModel(), "--port=0", "--prefill=0",
                                 "--decode=0", "--log-level=off", "--threads=1"},
                                DaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  ASSERT_FALSE(up->TakeReadyLine().empty());
  up->Signal(SIGKILL);
  EXPECT_TRUE(ReapAllChildren(std::chrono::seconds(30))) << "a process lives on";
}

TEST(DemoTest, AllChecksHold) {
  const CommandResult demo =
      Shell("demo --max-tokens 16 --model " + SampleModel() + " 2>/dev/null");
  EXPECT_EQ(demo.exit_status, 0) << demo.output;
  EXPECT_THAT(demo.output, HasSubstr("All held."));
}

}  // namespace
}  // namespace tandem::command_line_test
