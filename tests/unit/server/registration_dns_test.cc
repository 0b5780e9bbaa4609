// A worker that finds its routers by DNS, against routers of the test and answers that it writes.
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "gtest/gtest.h"
#include "server/assembly/registration.h"
#include "tests/support/silent_router.h"

namespace tandem::registration_dns_test {
namespace {

using Addresses = std::vector<std::string>;

// Answers with what the test wrote last for a name; before that with an error.
class ScriptedResolver final : public HostResolver {
 public:
  absl::StatusOr<Addresses> Resolve(const std::string& host) override {
    absl::MutexLock lock(&mutex_);
    ++num_looks_;
    const auto answer = answers_.find(host);
    if (answer == answers_.end()) return Unavailable("DNS does not answer");
    return answer->second;
  }
  void Answer(const std::string& host, Addresses addresses) {
    absl::MutexLock lock(&mutex_);
    answers_[host] = std::move(addresses);
  }
  void Fail(const std::string& host) {
    absl::MutexLock lock(&mutex_);
    answers_.erase(host);
  }
  // Until `more` looks have begun after this call. The worker has acted on a look before it begins
  // the next one. False after a minute.
  bool AwaitLooks(int more) {
    absl::MutexLock lock(&mutex_);
    const int least = num_looks_ + more;
    const auto came = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_looks_ >= least; };
    return mutex_.AwaitWithTimeout(absl::Condition(&came), absl::Minutes(1));
  }

 private:
  absl::Mutex mutex_;
  int num_looks_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Addresses> answers_ ABSL_GUARDED_BY(mutex_);
};

// A router at one of two addresses of this machine, both with one port.
struct TestRouter {
  std::string host;
  SilentRouter calls;
  std::unique_ptr<grpc::Server> server;
};

class RegistrationDnsTest : public testing::Test {
 protected:
  RegistrationDnsTest() {
    // The port that is free at the first address may be taken at the second.
    for (int attempt = 0; attempt < 20 && second_.server == nullptr; ++attempt) {
      port_ = 0;
      first_.server = Serve(first_.calls, first_.host, port_);
      second_.server = Serve(second_.calls, second_.host, port_);
    }
  }
  ~RegistrationDnsTest() override {
    registration_.reset();
    Stop(first_);
    Stop(second_);
  }
  void SetUp() override { ASSERT_NE(second_.server, nullptr) << "found no port"; }

  void Start(Addresses names) {
    for (std::string& name : names) name += ":" + std::to_string(port_);
    registration_ =
        std::make_unique<Registration>(RegistrationOptions{.routers = std::move(names),
                                                           .self = {},
                                                           .load = [] { return v1::WorkerLoad(); },
                                                           .resolver = &resolver_,
                                                           .look_up_every = kOften});
  }
  std::string AddressOf(const TestRouter& router) const {
    return router.host + ":" + std::to_string(port_);
  }
  // Until the worker has links to exactly these. False after a minute.
  bool AwaitLinks(const Addresses& routers) {
    const TimePoint end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (registration_->routers() != routers) {
      if (std::chrono::steady_clock::now() > end || !resolver_.AwaitLooks(1)) return false;
    }
    return true;
  }
  // Whether `more` heartbeats arrive after this call.
  static bool HearsMore(TestRouter& router, int more) {
    return router.calls.AwaitHeartbeats(router.calls.num_heartbeats() + more);
  }
  static void Stop(TestRouter& router) {
    if (router.server != nullptr) router.server->Shutdown();
    router.server.reset();
  }

  static constexpr Duration kOften = std::chrono::milliseconds(1);
  int port_ = 0;
  TestRouter first_ = {.host = "127.0.0.1"};
  TestRouter second_ = {.host = "127.0.0.2"};
  ScriptedResolver resolver_;
  std::unique_ptr<Registration> registration_;
};

TEST_F(RegistrationDnsTest, AWorkerRegistersAtEveryAddressOfAName) {
  resolver_.Answer("routers", {first_.host, second_.host});
  Start({"dns:routers"});
  EXPECT_TRUE(first_.calls.AwaitHeartbeats(2));
  EXPECT_TRUE(second_.calls.AwaitHeartbeats(2));
}

TEST_F(RegistrationDnsTest, ARouterThatAppearsIsJoined) {
  resolver_.Answer("routers", {first_.host});
  Start({"dns:routers"});
  ASSERT_TRUE(registration_->WaitUntilKnown());
  EXPECT_EQ(registration_->routers(), Addresses({AddressOf(first_)}));
  resolver_.Answer("routers", {first_.host, second_.host});
  EXPECT_TRUE(second_.calls.AwaitHeartbeats(1));
}

TEST_F(RegistrationDnsTest, DnsThatIsNotThereAtTheStartIsWaitedFor) {
  Start({"dns:routers"});
  ASSERT_TRUE(resolver_.AwaitLooks(3));
  EXPECT_TRUE(registration_->routers().empty());
  resolver_.Answer("routers", {first_.host});
  EXPECT_TRUE(registration_->WaitUntilKnown());
}

TEST_F(RegistrationDnsTest, OneRouterOfANameThatKnowsTheWorkerIsEnough) {
  Stop(second_);
  resolver_.Answer("routers", {first_.host, second_.host});
  Start({"dns:routers"});
  EXPECT_TRUE(registration_->WaitUntilKnown());
  EXPECT_EQ(registration_->routers(), Addresses({AddressOf(first_), AddressOf(second_)}));
}

TEST_F(RegistrationDnsTest, AWorkerIsNotKnownBeforeARouterOfEachNameKnowsIt) {
  resolver_.Answer("here", {first_.host});
  Start({"dns:here", "dns:there"});
  auto known = std::async(std::launch::async, [this] { return registration_->WaitUntilKnown(); });
  EXPECT_TRUE(first_.calls.AwaitHeartbeats(3));
  EXPECT_TRUE(resolver_.AwaitLooks(4));
  EXPECT_EQ(known.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  resolver_.Answer("there", {second_.host});
  EXPECT_TRUE(known.get());
}

TEST_F(RegistrationDnsTest, WhileDnsDoesNotAnswerNothingIsLost) {
  resolver_.Answer("routers", {first_.host, second_.host});
  Start({"dns:routers"});
  ASSERT_TRUE(second_.calls.AwaitHeartbeats(1));
  resolver_.Fail("routers");
  ASSERT_TRUE(resolver_.AwaitLooks(10));
  resolver_.Answer("routers", {});
  ASSERT_TRUE(resolver_.AwaitLooks(10));
  EXPECT_TRUE(HearsMore(first_, 3));
  EXPECT_TRUE(HearsMore(second_, 3));
  // A router that is started again at its address is found without DNS.
  Stop(second_);
  ASSERT_TRUE(HearsMore(first_, 20));
  second_.server = Serve(second_.calls, second_.host, port_);
  ASSERT_NE(second_.server, nullptr);
  EXPECT_TRUE(HearsMore(second_, 3));
}

TEST_F(RegistrationDnsTest, ARouterThatDnsNoLongerNamesIsLeftOnceItDoesNotAnswer) {
  resolver_.Answer("routers", {first_.host, second_.host});
  Start({"dns:routers"});
  ASSERT_TRUE(second_.calls.AwaitHeartbeats(1));
  resolver_.Answer("routers", {first_.host});
  ASSERT_TRUE(resolver_.AwaitLooks(3));
  EXPECT_TRUE(HearsMore(second_, 3)) << "it may be finishing requests of this worker";
  EXPECT_EQ(registration_->routers(), Addresses({AddressOf(first_), AddressOf(second_)}));
  Stop(second_);
  EXPECT_TRUE(AwaitLinks({AddressOf(first_)}));
  EXPECT_TRUE(HearsMore(first_, 3));
}

TEST_F(RegistrationDnsTest, ARouterThatWasLeftIsJoinedAgainWhenDnsNamesIt) {
  resolver_.Answer("routers", {first_.host, second_.host});
  Start({"dns:routers"});
  ASSERT_TRUE(second_.calls.AwaitHeartbeats(1));
  resolver_.Answer("routers", {first_.host});
  ASSERT_TRUE(resolver_.AwaitLooks(2));
  Stop(second_);
  ASSERT_TRUE(AwaitLinks({AddressOf(first_)}));
  second_.server = Serve(second_.calls, second_.host, port_);
  ASSERT_NE(second_.server, nullptr);
  resolver_.Answer("routers", {first_.host, second_.host});
  EXPECT_TRUE(second_.calls.AwaitRegistrations(2));
}

TEST_F(RegistrationDnsTest, TwoNamesOfOneRouterMakeOneLink) {
  resolver_.Answer("routers", {first_.host});
  Start({"dns:routers", first_.host});
  ASSERT_TRUE(registration_->WaitUntilKnown());
  EXPECT_EQ(registration_->routers(), Addresses({AddressOf(first_)}));
}

TEST_F(RegistrationDnsTest, ANameThatLeadsToAKnownRouterLaterEndsTheWait) {
  Start({"dns:routers", first_.host});
  ASSERT_TRUE(HearsMore(first_, 1));
  std::promise<void> begins;
  auto known = std::async(std::launch::async, [&] {
    begins.set_value();
    return registration_->WaitUntilKnown();
  });
  begins.get_future().wait();
  ASSERT_TRUE(resolver_.AwaitLooks(20));  // by then the other thread waits
  resolver_.Answer("routers", {first_.host});
  EXPECT_EQ(known.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  registration_->Stop();  // ends the wait in any case
}

TEST_F(RegistrationDnsTest, AWorkerThatLeavesIsNotHeldUpByDns) {
  resolver_.Answer("routers", {first_.host});
  Start({"dns:routers"});
  ASSERT_TRUE(registration_->WaitUntilKnown());
  registration_->Leave();
  EXPECT_TRUE(first_.calls.AwaitLeaving());
  registration_->Stop();
}

}  // namespace
}  // namespace tandem::registration_dns_test
