// How a worker keeps its routers told, against a router of the test.
#include "server/assembly/registration.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "tests/support/silent_router.h"

namespace tandem::registration_test {
namespace {

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
}  // namespace tandem::registration_test
