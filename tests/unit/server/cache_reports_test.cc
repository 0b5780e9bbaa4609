// What a worker has cached, from its prefix cache to the index of a router.
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "kvstore/prefix_cache.h"
#include "router/prefix/prefix_index.h"
#include "server/assembly/registration.h"
#include "server/services/cluster_service.h"
#include "server/services/worker_messages.h"
#include "tandem/v1/cluster.grpc.pb.h"
#include "tests/support/fake_clock.h"

namespace tandem::cache_reports_test {
namespace {

const WorkerId kWorker = {"w", 1};

TEST(CacheReportsTest, RouterAndWorkerHashAPromptAlike) {
  const KvLayout layout = {.num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8};
  const uint64_t fingerprint = layout.Fingerprint(12345);
  BlockPool pool(16);
  HostTier tier;
  PrefixCache cache({.layout = layout, .fingerprint = fingerprint}, pool, tier);
  std::vector<int32_t> prompt(60);
  std::iota(prompt.begin(), prompt.end(), 7);
  for (const char* salt : {"", "alice"}) {
    const PrefixKey key = cache.NewKey(salt);
    const auto of_worker = key.Extend(prompt);
    const auto of_router =
        HashPrompt({{.root = fingerprint, .block_tokens = layout.block_tokens}}, salt, prompt);
    EXPECT_EQ(of_router->chains.at(0).hashes, std::vector(of_worker.begin(), of_worker.end()));
  }
}

bool Knows(PrefixIndex& index, uint64_t hash) {
  PromptHashes prompt;
  prompt.prompt_tokens = 100;
  prompt.chains.push_back({.space = {.root = 1, .block_tokens = 8}, .hashes = {hash}});
  return !index.Find(prompt).empty();
}

// A cache whose blocks come and go, and routers that lose reports and answers, are restarted, and
// get late copies of reports. Whatever happened, a quiet moment makes them equal.
class LossyReports {
 public:
  explicit LossyReports(uint64_t seed) : random_(seed) {}

  void Change() {
    for (int i = Below(30); i > 0; --i) {
      const auto hash = static_cast<uint64_t>(Below(kHashes));
      if (cached_[hash]) {
        journal_.Remove(hash);
      } else {
        journal_.Add(hash);
      }
      cached_[hash] = !cached_[hash];
    }
  }
  void LoseSomething() {
    for (Peer& peer : peers_) {
      const v1::CacheChanges report = Next(peer, 1 + Below(20));
      switch (Below(8)) {
        case 0:  // the report is lost
          break;
        case 1:  // the answer is lost
          peer.index->Apply(kWorker, report);
          break;
        case 2:
          peer.index = std::make_unique<PrefixIndex>(1 << 20);
          break;
        case 3:  // a copy of an earlier report arrives late
          peer.confirmed = peer.index->Apply(kWorker, report);
          peer.index->Apply(kWorker, peer.earlier);
          break;
        default:
          peer.confirmed = peer.index->Apply(kWorker, report);
      }
      if (Below(3) == 0) peer.earlier = report;
    }
  }
  void ExpectEqualAfterQuiet() {
    for (Peer& peer : peers_) {
      bool more = true;
      int reports = 0;
      for (int quiet = 0; quiet < 3; quiet += more ? 0 : 1) {
        const v1::CacheChanges report = Next(peer, 25);
        more = report.more();
        peer.confirmed = peer.index->Apply(kWorker, report);
        ASSERT_LT(++reports, 100) << "no end of it";
      }
      for (uint64_t hash = 0; hash < kHashes; ++hash) {
        ASSERT_EQ(Knows(*peer.index, hash), bool{cached_[hash]}) << "hash " << hash;
      }
      EXPECT_EQ(peer.index->Use().entries(), journal_.num_cached());
    }
  }
  uint64_t num_resets() const {
    return peers_[0].index->Use().resets() + peers_[1].index->Use().resets();
  }

 private:
  static constexpr uint64_t kHashes = 120;

  struct Peer {
    PrefixReader reader;
    std::unique_ptr<PrefixIndex> index = std::make_unique<PrefixIndex>(1 << 20);
    uint64_t confirmed = 0;
    v1::CacheChanges earlier = {};
  };

  int Below(int limit) { return static_cast<int>(random_() % limit); }
  static v1::CacheChanges Next(Peer& peer, size_t most) {
    const v1::CacheChanges report = ToProto(peer.reader.Next(peer.confirmed, most));
    EXPECT_EQ(PrefixIndex::Check(report, most), absl::OkStatus());
    return report;
  }

  std::mt19937_64 random_;
  std::vector<bool> cached_ = std::vector<bool>(kHashes);
  PrefixJournal journal_{/*most_removed=*/24};
  Peer peers_[2] = {{.reader = PrefixReader(journal_)}, {.reader = PrefixReader(journal_)}};
};

TEST(CacheReportsTest, RoutersEndUpWithWhatTheWorkerHas) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    LossyReports reports(seed);
    for (int round = 0; round < 6; ++round) {
      for (int i = 0; i < 10; ++i) {
        reports.Change();
        reports.LoseSomething();
      }
      ASSERT_NO_FATAL_FAILURE(reports.ExpectEqualAfterQuiet());
    }
    EXPECT_GT(reports.num_resets(), 0u);
  }
}

// A router that takes four changes with a heartbeat, and asks for heartbeats once an hour.
class SlowRouter final : public v1::Cluster::Service {
 public:
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest*,
                        v1::RegisterResponse* response) override {
    response->set_heartbeat_ms(3'600'000);
    return grpc::Status::OK;
  }
  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                         v1::HeartbeatResponse* response) override {
    absl::MutexLock lock(&mutex_);
    response->set_most_cache_changes(4);
    if (!request->has_cache()) return grpc::Status::OK;
    EXPECT_EQ(PrefixIndex::Check(request->cache(), 4), absl::OkStatus());
    response->set_cache_sequence(index_.Apply(kWorker, request->cache()));
    return grpc::Status::OK;
  }
  grpc::Status Deregister(grpc::ServerContext*, const v1::DeregisterRequest*,
                          v1::DeregisterResponse*) override {
    return grpc::Status::OK;
  }
  // False after a minute.
  bool AwaitEntries(uint64_t entries) {
    absl::MutexLock lock(&mutex_);
    const auto so = [&] { return index_.Use().entries() == entries; };
    return mutex_.AwaitWithTimeout(absl::Condition(&so), absl::Minutes(1));
  }

 private:
  absl::Mutex mutex_;
  PrefixIndex index_{1 << 20};
};

TEST(CacheReportsTest, ABacklogDoesNotWaitForRegularHeartbeats) {
  SlowRouter router;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&router);
  const auto server = builder.BuildAndStart();
  PrefixJournal journal;
  for (uint64_t hash = 0; hash < 30; ++hash) journal.Add(hash);
  {
    Registration registration({.routers = {"127.0.0.1:" + std::to_string(port)},
                               .self = {},
                               .load = [] { return v1::WorkerLoad(); },
                               .cached = &journal});
    ASSERT_TRUE(registration.WaitUntilKnown());
    registration.Nudge();
    EXPECT_TRUE(router.AwaitEntries(30));
    for (uint64_t hash = 0; hash < 10; ++hash) journal.Remove(hash);
    registration.Nudge();
    EXPECT_TRUE(router.AwaitEntries(20));
  }
  server->Shutdown();
}

// The service between the heartbeats of workers and the index.
class CacheServiceTest : public testing::Test {
 protected:
  CacheServiceTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::Cluster::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                     grpc::InsecureChannelCredentials()));
  }
  ~CacheServiceTest() override { server_->Shutdown(); }

  void Register() {
    v1::RegisterRequest request;
    request.set_name(kWorker.name);
    request.set_incarnation(kWorker.incarnation);
    request.set_role(v1::WORKER_ROLE_UNIFIED);
    request.set_address("w:1");
    request.set_model("sample");
    request.set_max_context_tokens(100);
    request.mutable_layout()->set_num_layers(2);
    request.mutable_layout()->set_dtype("bf16");
    request.mutable_layout()->set_block_tokens(8);
    request.set_prefix_root(1);
    grpc::ClientContext context;
    v1::RegisterResponse response;
    ASSERT_TRUE(stub_->Register(&context, request, &response).ok());
  }
  grpc::Status Beat(const v1::CacheChanges& cache, v1::HeartbeatResponse& response) {
    v1::HeartbeatRequest request;
    request.set_name(kWorker.name);
    request.set_incarnation(kWorker.incarnation);
    *request.mutable_cache() = cache;
    grpc::ClientContext context;
    return stub_->Heartbeat(&context, request, &response);
  }

  FakeClock clock_;
  Cluster cluster_{{.model = "sample"}, clock_};
  PrefixIndex index_{1 << 20};
  ClusterService service_{cluster_, &index_, /*most_cache_changes=*/2};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Cluster::Stub> stub_;
};

TEST_F(CacheServiceTest, ReportsOfAWorkerWithALeaseAreApplied) {
  Register();
  v1::CacheChanges cache;
  cache.set_sequence(3);
  cache.add_added(42);
  v1::HeartbeatResponse response;
  ASSERT_TRUE(Beat(cache, response).ok());
  EXPECT_EQ(response.cache_sequence(), 3u);
  EXPECT_EQ(response.most_cache_changes(), 2u);
  EXPECT_TRUE(Knows(index_, 42));
  cache.set_since(9);
  cache.set_sequence(10);
  ASSERT_TRUE(Beat(cache, response).ok()) << "the lease is renewed all the same";
  EXPECT_EQ(response.cache_sequence(), 3u) << "which the worker has to continue";
}

TEST_F(CacheServiceTest, ReportsOfUnknownWorkersAndTooLargeOnesAreRefused) {
  v1::CacheChanges cache;
  cache.set_sequence(1);
  cache.add_added(42);
  v1::HeartbeatResponse response;
  EXPECT_EQ(Beat(cache, response).error_code(), grpc::StatusCode::NOT_FOUND);
  Register();
  cache.add_added(43);
  cache.add_removed(44);
  const grpc::Status refused = Beat(cache, response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(refused.error_message().find("3 changes; at most 2"), std::string::npos);
  EXPECT_EQ(index_.Use().entries(), 0u);
}

}  // namespace
}  // namespace tandem::cache_reports_test
