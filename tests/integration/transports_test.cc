// The ways that KV takes between real workers: which one, and what the status tells of it.

#include <sys/resource.h>

#include <algorithm>
#include <future>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"

namespace tandem::transports_test {
namespace {

constexpr char kPrompt[] = "It was a fine morning, and the ladies";

using ::testing::HasSubstr;
using Links = std::vector<v1::LinkStatus>;

// From all prefill workers.
Links LinksIn(const v1::GetStatusResponse& status) {
  Links links;
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.role() == "prefill") {
      links.insert(links.end(), worker.load().links().begin(), worker.load().links().end());
    }
  }
  return links;
}

Links LinksOf(TestCluster& cluster) {
  const auto status = cluster.client().GetStatus(std::chrono::seconds(10));
  EXPECT_TRUE(status.ok()) << status.status();
  return status.ok() ? LinksIn(*status) : Links();
}

const v1::LinkStatus* InUse(const Links& links) {
  const auto found = std::find_if(links.begin(), links.end(),
                                  [](const v1::LinkStatus& link) { return link.in_use(); });
  return found == links.end() ? nullptr : &*found;
}

v1::GenerateRequest Request() { return TextRequest(kPrompt, v1::ROUTE_DISAGGREGATED, 8); }

TEST(TransportsTest, EveryWayIsProbedAndTheFastestIsTaken) {
  TestCluster cluster({.unified = 0});
  cluster.WaitFor("every way is probed", [](const v1::GetStatusResponse& status) {
    const Links links = LinksIn(status);
    return links.size() == 3 && std::all_of(links.begin(), links.end(), [](const auto& link) {
             return link.probe_gb_per_s() > 0 && link.setup_us() > 0;
           });
  });
  const Outcome outcome = Ask(cluster.client(), Request());
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  cluster.WaitFor("a way is in use", [](const v1::GetStatusResponse& status) {
    return InUse(LinksIn(status)) != nullptr;
  });
  const Links links = LinksOf(cluster);
  const v1::LinkStatus* used = InUse(links);
  ASSERT_NE(used, nullptr);
  EXPECT_EQ(used->peer(), "decode-0");
  EXPECT_EQ(used->fallbacks(), 0u);
  for (const v1::LinkStatus& link : links) {
    EXPECT_LE(link.probe_gb_per_s(), used->probe_gb_per_s()) << link.transport();
  }
  const auto status = cluster.client().GetStatus(std::chrono::seconds(10));
  ASSERT_TRUE(status.ok());
  // The areas of shared memory, and what probes are sent from.
  EXPECT_GE(FindWorker(*status, "prefill-0")->load().handoffs().buffer_bytes(), 68u << 20);
}

TEST(TransportsTest, AForcedOneIsTheOnlyOne) {
  for (const std::string transport : {"ipc", "shm", "tcp"}) {
    TestCluster cluster({.unified = 0, .worker_flags = {"--kv-transport=" + transport}});
    const Outcome outcome = Ask(cluster.client(), Request());
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    cluster.WaitFor("the way is in use", [&transport](const v1::GetStatusResponse& status) {
      const Links links = LinksIn(status);
      return links.size() == 1 && links[0].transport() == transport && links[0].in_use();
    });
  }
}

// A prompt of 300 tokens that no other seed has.
v1::GenerateRequest LongRequest(int32_t seed) {
  v1::GenerateRequest request = TextRequest("", v1::ROUTE_DISAGGREGATED, 16);
  for (int32_t i = 0; i < 300; ++i) {
    request.mutable_token_ids()->add_ids(300 + (seed * 131 + i * 7) % 1000);
  }
  return request;
}

// The first prompts make the tables of the codec; the answers after them are those of one worker.
TEST(TransportsTest, KvTravelsEncodedAndLosesNothing) {
  TestCluster cluster(
      {.worker_flags = {"--kv-transport=tcp", "--kv-codec=mask-rice", "--prefix-cache=off"}});
  for (int32_t seed = 1; seed < 12; ++seed) {
    v1::GenerateRequest request = LongRequest(seed);
    const Outcome two = Ask(cluster.client(), request);
    ASSERT_TRUE(two.status.ok()) << two.status;
    request.set_route(v1::ROUTE_UNIFIED);
    const Outcome one = Ask(cluster.client(), request);
    ASSERT_TRUE(one.status.ok()) << one.status;
    EXPECT_EQ(two.generation.choices[0].token_ids, one.generation.choices[0].token_ids)
        << "seed " << seed;
    if (seed < 8) continue;  // 7 x 300 tokens are twice as many as tables are made of
    const v1::KvBytes& kv = two.generation.choices[0].finish.kv_bytes();
    EXPECT_EQ(kv.codec(), "mask-rice");
    EXPECT_GT(static_cast<double>(kv.raw()) / static_cast<double>(kv.wire()), 1.45);
    EXPECT_GT(kv.expected_ms(), 0);
  }
  cluster.WaitFor("the counts of the codec", [](const v1::GetStatusResponse& status) {
    const v1::HandoffUse& handoffs = FindWorker(status, "prefill-0")->load().handoffs();
    const v1::LinkStatus* const used = InUse(LinksIn(status));
    return used != nullptr && used->kv_ratio() > 1.4 && handoffs.mask_rice_streams() >= 4 &&
           handoffs.mask_rice_encode_gb_per_s() > 0 &&
           handoffs.codec_kv_bytes() > handoffs.codec_wire_bytes();
  });
}

// Enough at once that each prefill worker gets some.
void AskSeveral(TestCluster& cluster) {
  std::vector<std::future<Outcome>> asked;
  for (int i = 0; i < 8; ++i) {
    asked.push_back(
        std::async(std::launch::async, [&cluster] { return Ask(cluster.client(), Request()); }));
  }
  for (auto& outcome : asked) {
    const Outcome got = outcome.get();
    EXPECT_TRUE(got.status.ok()) << got.status;
  }
}

// A prefill worker with shared memory for one connection, and two decode workers to connect to.
TestClusterOptions RoomForOne() {
  return {.prefill = 1,
          .decode = 2,
          .unified = 0,
          .worker_flags = {"--kv-transport=shm,tcp", "--kv-buffer-bytes=4MiB"}};
}

Links LinksTo(const v1::GetStatusResponse& status, const std::string& peer) {
  Links links = LinksIn(status);
  std::erase_if(links, [&peer](const v1::LinkStatus& link) { return link.peer() != peer; });
  return links;
}

TEST(TransportsTest, WithoutRoomInSharedMemoryALinkTakesTcpAndSaysSo) {
  TestClusterOptions options = RoomForOne();
  options.worker_flags.push_back("--kv-probe=off");
  TestCluster cluster(options);
  AskSeveral(cluster);
  cluster.WaitFor("one link takes shm and the other tcp", [](const v1::GetStatusResponse& status) {
    bool shm = false;
    bool tcp = false;
    for (const v1::LinkStatus& link : LinksIn(status)) {
      if (!link.in_use()) continue;
      shm = shm || (link.transport() == "shm" && link.fallbacks() == 0);
      tcp = tcp ||
            (link.transport() == "tcp" && link.fallbacks() > 0 && !link.fallback_reason().empty());
    }
    return shm && tcp;
  });
  // The counts belong to the process of decode-0 and begin anew with the next one.
  cluster.Kill("decode-0");
  cluster.Start("decode-0");
  cluster.WaitFor(
      "the links to the new process are shown", [](const v1::GetStatusResponse& status) {
        const Links links = LinksTo(status, "decode-0");
        return links.size() == 2 && std::ranges::none_of(links, &v1::LinkStatus::in_use) &&
               std::ranges::all_of(links, [](const auto& link) { return link.fallbacks() == 0; });
      });
}

// A prefill that has the machine to itself sends KV late and in small bursts, although its links
// are as fast as ever: the alert TandemLinkSlow (deploy/prometheus/tandem.rules.yml) must not hold.
TEST(TransportsTest, HandOffsUnderLoadMakeNoLinkLookSlow) {
  for (const std::string transport : {"ipc", "shm", "tcp"}) {
    TestCluster cluster({.unified = 0, .worker_flags = {"--kv-transport=" + transport}});
    cluster.WaitFor("the link is probed", [](const v1::GetStatusResponse& status) {
      const Links links = LinksIn(status);
      return links.size() == 1 && links[0].best_probe_gb_per_s() > 0;
    });
    std::vector<std::future<Outcome>> asked;
    for (int i = 0; i < 8; ++i) {
      std::string prompt = std::to_string(i);  // so that no prefix is shared
      while (prompt.size() < 6000) prompt += kPrompt;
      asked.push_back(std::async(std::launch::async, [&cluster, prompt] {
        return Ask(cluster.client(), TextRequest(prompt, v1::ROUTE_DISAGGREGATED, 4));
      }));
    }
    for (auto& outcome : asked) {
      const Outcome got = outcome.get();
      EXPECT_TRUE(got.status.ok()) << got.status;
    }
    cluster.WaitFor("all that moved is told of", [](const v1::GetStatusResponse& status) {
      return FindWorker(status, "prefill-0")->load().kv_bytes_sent() > 32'000'000;
    });
    const Links links = LinksOf(cluster);
    ASSERT_EQ(links.size(), 1u);
    const double fastest = links[0].fastest_gb_per_s();
    EXPECT_TRUE(fastest == 0 || fastest >= 0.25 * links[0].best_probe_gb_per_s())
        << links[0].ShortDebugString();
  }
}

// The same with probes: the link without room is not measured by shm, only by tcp. Once the other
// decode worker has left there is room.
TEST(TransportsTest, ALinkWithoutRoomForItsProbeSaysSoAndComesBack) {
  TestCluster cluster(RoomForOne());
  std::string without_room;
  const auto finds_it = [&without_room](const v1::GetStatusResponse& status) {
    int measured = 0;
    for (const v1::LinkStatus& link : LinksIn(status)) {
      if (link.probe_gb_per_s() > 0) ++measured;
      if (!link.probe_failure().empty()) without_room = link.peer();
    }
    return measured == 3 && !without_room.empty();
  };
  cluster.WaitFor("one link is measured by both transports, the other by tcp", finds_it);
  AskSeveral(cluster);
  cluster.WaitFor("tcp is a fallback", [&without_room](const v1::GetStatusResponse& status) {
    return std::ranges::any_of(LinksTo(status, without_room), [](const v1::LinkStatus& link) {
      return link.transport() == "tcp" && link.in_use() && link.fallbacks() > 0 &&
             link.fallback_reason().find("shared memory") != std::string::npos;
    });
  });
  cluster.Kill(without_room == "decode-0" ? "decode-1" : "decode-0");
  cluster.WaitFor("it is measured by shm", [&without_room](const v1::GetStatusResponse& status) {
    return std::ranges::any_of(LinksTo(status, without_room), [](const v1::LinkStatus& link) {
      return link.transport() == "shm" && link.probe_gb_per_s() > 0;
    });
  });
  const Outcome outcome = Ask(cluster.client(), Request());
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  cluster.WaitFor("the faster is in use", [&without_room](const v1::GetStatusResponse& status) {
    const Links links = LinksTo(status, without_room);
    const v1::LinkStatus* used = InUse(links);
    return used != nullptr && std::ranges::all_of(links, [used](const v1::LinkStatus& link) {
             return link.probe_gb_per_s() <= used->probe_gb_per_s();
           });
  });
}

// The largest file of this process and of those that it starts, while this lives. What processes
// share is a file to the system, what they have alone is none.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

constexpr rlim_t kLargestFile = 40 << 20;
constexpr char kLargerPool[] = "--kv-tokens=16384";  // 48 MiB

TEST(TransportsTest, APoolThatCannotBeSharedIsPrivateAndIpcLeftOut) {
  const FileSizeLimit limit(kLargestFile);
  TestCluster cluster({.unified = 0, .prefill_flags = {kLargerPool}});
  const Outcome outcome = Ask(cluster.client(), Request());
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  cluster.WaitFor("two ways are left", [](const v1::GetStatusResponse& status) {
    const Links links = LinksIn(status);
    const auto count = [&links](const std::string& peer, const std::string& transport) {
      return std::ranges::count_if(links, [&](const v1::LinkStatus& link) {
        return link.peer() == peer && link.transport() == transport;
      });
    };
    return count("decode-0", "shm") == 1 && count("decode-0", "tcp") == 1 &&
           count("decode-0", "ipc") == 0 && count("", "ipc") == 1;
  });
  const CommandResult table = Shell("status --links --server " + cluster.address());
  EXPECT_THAT(table.output, HasSubstr("prefill-0 does without ipc: RESOURCE_EXHAUSTED"));
}

}  // namespace
}  // namespace tandem::transports_test
