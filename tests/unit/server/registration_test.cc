// How a worker keeps its routers told, against a router of the test.
#include "server/assembly/registration.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "tandem/v1/cluster.grpc.pb.h"

namespace tandem {
namespace {

// Keeps what it is told; answers no call while it is held.
class SilentRouter final : public v1::Cluster::Service {
 public:
  grpc::Status Register(grpc::ServerContext* context, const v1::RegisterRequest* request,
                        v1::RegisterResponse* response) override {
    response->set_heartbeat_ms(heartbeat_ms);
    return Take(*context, request->load());
  }
  grpc::Status Heartbeat(grpc::ServerContext* context, const v1::HeartbeatRequest* request,
                         v1::HeartbeatResponse* response) override {
    if (!peer.empty()) {
      v1::KvPeer& known = *response->add_kv_peers();
      known.set_name(peer);
      known.set_epoch(peer_epoch);
    }
    {
      absl::MutexLock lock(&mutex_);
      ++num_heartbeats_;
      has_heard_leaving_ = has_heard_leaving_ || request->leaving();
    }
    return Take(*context, request->load());
  }
  grpc::Status Deregister(grpc::ServerContext*, const v1::DeregisterRequest*,
                          v1::DeregisterResponse*) override {
    return grpc::Status::OK;
  }

  // Set before the first call.
  int64_t heartbeat_ms = 10;
  std::string peer;  // that KV may be sent to
  uint64_t peer_epoch = 1;

  void Hold(bool held) {
    absl::MutexLock lock(&mutex_);
    held_ = held;
  }
  // False after a minute.
  bool AwaitCallThatIsHeld() {
    absl::MutexLock lock(&mutex_);
    const auto one = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_held_ > 0; };
    return mutex_.AwaitWithTimeout(absl::Condition(&one), absl::Minutes(1));
  }
  bool AwaitWord(const std::string& not_ready) {
    absl::MutexLock lock(&mutex_);
    const auto came = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return word_ == not_ready; };
    return mutex_.AwaitWithTimeout(absl::Condition(&came), absl::Minutes(1));
  }
  // False after a minute.
  bool AwaitHeartbeats(int least) {
    absl::MutexLock lock(&mutex_);
    const auto came = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return num_heartbeats_ >= least;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&came), absl::Minutes(1));
  }
  // Until a heartbeat says that the worker is leaving. False after a minute.
  bool AwaitLeaving() {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&has_heard_leaving_), absl::Minutes(1));
  }
  // Calls that were held until their time was over.
  int num_timed_out() {
    absl::MutexLock lock(&mutex_);
    return num_timed_out_;
  }

 private:
  grpc::Status Take(grpc::ServerContext& context, const v1::WorkerLoad& load) {
    absl::MutexLock lock(&mutex_);
    word_ = load.not_ready();
    ++num_held_;
    const auto over = [this, &context]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !held_ || context.IsCancelled();
    };
    while (!mutex_.AwaitWithTimeout(absl::Condition(&over), absl::Milliseconds(1))) {
    }
    --num_held_;
    if (context.IsCancelled() && std::chrono::system_clock::now() >= context.deadline()) {
      ++num_timed_out_;
    }
    return grpc::Status::OK;
  }

  absl::Mutex mutex_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  int num_held_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_timed_out_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_heartbeats_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_heard_leaving_ ABSL_GUARDED_BY(mutex_) = false;
  std::string word_ ABSL_GUARDED_BY(mutex_) = "nothing yet";
};

std::unique_ptr<grpc::Server> Serve(SilentRouter& router, std::string& address) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&router);
  auto server = builder.BuildAndStart();
  address = "127.0.0.1:" + std::to_string(port);
  return server;
}

class RegistrationTest : public testing::Test {
 protected:
  RegistrationTest() {
    std::string address;
    server_ = Serve(router_, address);
    registration_ = std::make_unique<Registration>(
        RegistrationOptions{.routers = {address}, .self = {}, .load = [this] {
                              absl::MutexLock lock(&mutex_);
                              v1::WorkerLoad load;
                              load.set_not_ready(not_ready_);
                              return load;
                            }});
  }
  ~RegistrationTest() override {
    router_.Hold(false);
    registration_.reset();
    server_->Shutdown();
  }

  void SetNotReady(const std::string& reason) {
    absl::MutexLock lock(&mutex_);
    not_ready_ = reason;
  }

  absl::Mutex mutex_;
  std::string not_ready_ ABSL_GUARDED_BY(mutex_);
  SilentRouter router_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Registration> registration_;
};

TEST_F(RegistrationTest, TheLoadIsToldWithEveryHeartbeat) {
  ASSERT_TRUE(router_.AwaitWord(""));
  SetNotReady("the engine hangs");
  EXPECT_TRUE(router_.AwaitWord("the engine hangs"));
}

TEST_F(RegistrationTest, AWorkerThatLeavesSaysSoInItsHeartbeats) {
  ASSERT_TRUE(registration_->WaitUntilKnown());
  registration_->Leave();
  EXPECT_TRUE(router_.AwaitLeaving());
}

TEST(RegistrationNudgeTest, AChangeOfTheLoadDoesNotWaitForTheNextHeartbeat) {
  SilentRouter router;
  router.heartbeat_ms = 3'600'000;
  RegistrationOptions options{.routers = {""}, .self = {}, .load = {}};
  const auto server = Serve(router, options.routers[0]);
  std::atomic<bool> changed = false;
  options.load = [&changed] {
    v1::WorkerLoad load;
    load.set_not_ready(changed ? "changed" : "");
    return load;
  };
  Registration registration(std::move(options));
  ASSERT_TRUE(registration.WaitUntilKnown());
  changed = true;
  registration.Nudge();
  EXPECT_TRUE(router.AwaitWord("changed"));
}

// A process of which one thread hangs may not get to read an answer that has come: the call ends by
// its deadline of 2 s, and until then the routers would know nothing.
TEST_F(RegistrationTest, WhatMustBeToldNowWaitsForNoAnswer) {
  ASSERT_TRUE(router_.AwaitWord(""));
  router_.Hold(true);
  ASSERT_TRUE(router_.AwaitCallThatIsHeld());
  const int before = router_.num_timed_out();
  SetNotReady("the engine hangs");
  registration_->TellNow();
  EXPECT_TRUE(router_.AwaitWord("the engine hangs"));
  EXPECT_EQ(router_.num_timed_out(), before) << "it waited for a call's deadline";
}

// The last word of each router on whom KV may be sent to.
class KnownPeers {
 public:
  void Set(const std::vector<v1::KvPeer>& peers) {
    absl::MutexLock lock(&mutex_);
    names_.clear();
    for (const v1::KvPeer& peer : peers) {
      names_.push_back(peer.epoch() == 1 ? peer.name()
                                         : peer.name() + " of " + std::to_string(peer.epoch()));
    }
  }
  // False after a minute.
  bool Await(const std::vector<std::string>& names) {
    absl::MutexLock lock(&mutex_);
    const auto so = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return names_ == names; };
    return mutex_.AwaitWithTimeout(absl::Condition(&so), absl::Minutes(1));
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
};

TEST(RegistrationPeersTest, OfTwoLivesOfAPeerTheYoungerOneCounts) {
  SilentRouter older;
  SilentRouter younger;
  older.peer = younger.peer = "d0";
  younger.peer_epoch = 2;
  RegistrationOptions options{
      .routers = {"", ""}, .self = {}, .load = [] { return v1::WorkerLoad(); }};
  const auto first = Serve(older, options.routers[0]);
  const auto second = Serve(younger, options.routers[1]);
  KnownPeers known;
  options.kv_peers = [&known](const std::vector<v1::KvPeer>& peers) { known.Set(peers); };
  Registration registration(std::move(options));
  // What a router answers is known before it gets the next heartbeat.
  ASSERT_TRUE(older.AwaitHeartbeats(2));
  ASSERT_TRUE(younger.AwaitHeartbeats(2));
  EXPECT_TRUE(known.Await({"d0 of 2"}));
}

TEST(RegistrationPeersTest, WhatARouterSaidThatIsGoneDoesNotCountAgainstOneThatIsThere) {
  SilentRouter stays;
  SilentRouter goes;
  stays.peer = "d0";
  goes.peer = "d1";
  RegistrationOptions options{
      .routers = {"", ""}, .self = {}, .load = [] { return v1::WorkerLoad(); }};
  const auto server = Serve(stays, options.routers[0]);
  const auto lost = Serve(goes, options.routers[1]);
  KnownPeers known;
  options.kv_peers = [&known](const std::vector<v1::KvPeer>& peers) { known.Set(peers); };
  Registration registration(std::move(options));
  ASSERT_TRUE(known.Await({"d0", "d1"}));
  lost->Shutdown();
  EXPECT_TRUE(known.Await({"d0"}));
}

}  // namespace
}  // namespace tandem
