// Whether a router is live and ready, by what it knows of its workers and of its own loop.

#include "server/admin/router_health.h"

#include <atomic>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/cluster_fixture.h"

namespace tandem::router_health_test {
namespace {

using ::testing::HasSubstr;

// The check of that name, which must be there.
HealthCheck Find(const HealthReport& report, const std::string& name) {
  for (const HealthCheck& check : report.checks) {
    if (check.name == name) return check;
  }
  ADD_FAILURE() << "no check is called " << name;
  return {};
}

class RouterHealthTest : public ClusterFixture {
 protected:
  ~RouterHealthTest() override {
    loop_.Stop();
    loop_thread_.join();
  }

  SteadyClock real_clock_;
  EventLoop loop_{real_clock_, 64};
  std::thread loop_thread_{[this] { loop_.Run(); }};
  std::atomic<bool> full_ = false;
  std::atomic<bool> told_ready_ = false;
  RouterHealth health_{{.loop = loop_,
                        .cluster = cluster_,
                        .clock = clock_,
                        .connections =
                            [this] {
                              v1::ConnectionUse use;
                              use.set_full(full_);
                              return use;
                            },
                        .changed = [this](bool ready) { told_ready_ = ready; },
                        .watching = {.patience = std::chrono::minutes(1),
                                     .interval = std::chrono::milliseconds(1)}}};
};

TEST_F(RouterHealthTest, ItIsReadyOnceARouteIsServedByWorkersThatProveProgress) {
  EXPECT_TRUE(health_.Live().ok());
  EXPECT_FALSE(health_.Ready().ok());
  EXPECT_THAT(Find(health_.Ready(), "routes").problem, HasSubstr("no route"));
  ASSERT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
  EXPECT_FALSE(health_.Ready().ok()) << "a prefill worker alone serves nobody";
  EXPECT_FALSE(told_ready_);
  ASSERT_TRUE(cluster_.Register(Worker("d", v1::WORKER_ROLE_DECODE)).ok());
  EXPECT_TRUE(health_.Ready().ok());
  while (!told_ready_) std::this_thread::yield();
  clock_.Advance(std::chrono::milliseconds(250));
  EXPECT_EQ(Find(health_.Ready(), "routes").age, std::chrono::milliseconds(250));
  v1::HeartbeatRequest stuck;
  stuck.set_name("d");
  stuck.set_incarnation(10);
  stuck.mutable_load()->set_not_ready("no step has ended for 30 s");
  ASSERT_TRUE(cluster_.Heartbeat(stuck).ok());
  EXPECT_FALSE(health_.Ready().ok());
  while (told_ready_) std::this_thread::yield();
  EXPECT_TRUE(health_.Live().ok());
}

TEST_F(RouterHealthTest, ItIsNotReadyWithoutRoomForAConnectionNorWhileItDrains) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  EXPECT_TRUE(health_.Ready().ok());
  full_ = true;
  EXPECT_THAT(Find(health_.Ready(), "connections").problem, HasSubstr("all the connections"));
  EXPECT_FALSE(health_.Ready().ok());
  full_ = false;
  health_.SetDraining();
  EXPECT_THAT(Find(health_.Ready(), "draining").problem, HasSubstr("draining"));
  EXPECT_FALSE(health_.Ready().ok());
  EXPECT_TRUE(health_.Live().ok()) << "it must not be restarted while it drains";
}

TEST(RouterLoopTest, ALoopThatHangsIsNotLiveUntilItMovesAgain) {
  const SteadyClock clock;
  EventLoop loop(clock, 64);
  std::thread thread([&loop] { loop.Run(); });
  Cluster cluster({.model = "sample"}, clock);
  RouterHealth health({.loop = loop,
                       .cluster = cluster,
                       .clock = clock,
                       .connections = [] { return v1::ConnectionUse(); },
                       .changed = [](bool) {},
                       .watching = {.patience = std::chrono::milliseconds(100),
                                    .interval = std::chrono::milliseconds(5)}});
  absl::Notification go_on;
  absl::Notification hangs;
  std::thread poster([&] {
    loop.Post([&] {
      hangs.Notify();
      go_on.WaitForNotification();
    });
  });
  hangs.WaitForNotification();
  while (health.Live().ok()) std::this_thread::yield();
  EXPECT_THAT(Find(health.Live(), "router").problem, HasSubstr("the router thread"));
  EXPECT_FALSE(health.Ready().ok());
  go_on.Notify();
  while (!health.Live().ok()) std::this_thread::yield();
  poster.join();
  loop.Stop();
  thread.join();
}

}  // namespace
}  // namespace tandem::router_health_test
