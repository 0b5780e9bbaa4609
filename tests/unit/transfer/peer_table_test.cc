#include "transfer/fabric/peer_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::peer_table_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::vector<Endpoint> kEndpoints = {{"shm", "s"}, {"tcp", "t"}};

class PeerTableTest : public testing::Test {
 protected:
  static KnownPeer Peer(const std::string& name, uint64_t epoch = 1) {
    return {.name = name, .epoch = epoch, .address = "at " + name, .endpoints = kEndpoints};
  }
  // Probes the way that is due.
  std::string Probe(const absl::StatusOr<LinkProbe>& found, const LinkStats& link = {}) {
    const auto next = table_.NextProbe(now_);
    if (!next.job) return "none";
    table_.Probed(*next.job, found, link, now_);
    return next.job->name + " " + next.job->endpoint.transport;
  }
  static LinkProbe Rate(double gigabytes_per_second) {
    return {.gigabytes_per_second = gigabytes_per_second};
  }
  PeerTable::Choice Choose(const std::string& name) {
    return table_.Choose("at " + name, kEndpoints, now_);
  }
  PeerLink LinkOf(const std::string& peer, const std::string& transport,
                  std::vector<LinkStats> links = {}) {
    for (PeerLink& link : table_.Describe(links)) {
      if (link.peer == peer && link.stats.transport == transport) return link;
    }
    ADD_FAILURE() << "no link to " << peer << " by " << transport;
    return {};
  }

  // What shm has moved of late.
  static LinkStats At(double gigabytes_per_second) {
    return {.peer = "s",
            .transport = "shm",
            .gigabytes_per_second = gigabytes_per_second,
            .fastest_gigabytes_per_second = gigabytes_per_second};
  }

  PeerTable table_;
  TimePoint now_{seconds(100)};
};

TEST_F(PeerTableTest, NewPeersAreProbedOnceEachWay) {
  table_.SetPeers({Peer("a"), Peer("b")}, now_);
  EXPECT_EQ(Probe(Rate(2)), "a shm");
  EXPECT_EQ(Probe(Rate(3)), "a tcp");
  EXPECT_EQ(Probe(Rate(3)), "b shm");
  EXPECT_EQ(Probe(Rate(2)), "b tcp");
  EXPECT_EQ(Probe(Rate(1)), "none");
  table_.SetPeers({Peer("a"), Peer("b")}, now_);
  EXPECT_EQ(Probe(Rate(1)), "none");
  EXPECT_EQ(Choose("a").endpoint.transport, "tcp");
  EXPECT_EQ(Choose("b").endpoint.transport, "shm");
  EXPECT_DOUBLE_EQ(LinkOf("a", "tcp").stats.probe_gigabytes_per_second, 3);
  EXPECT_TRUE(LinkOf("a", "tcp").in_use);
  EXPECT_FALSE(LinkOf("a", "shm").in_use);
}

TEST_F(PeerTableTest, APeerThatStartedAgainIsAnother) {
  table_.SetPeers({Peer("a")}, now_);
  EXPECT_EQ(Probe(Rate(2)), "a shm");
  EXPECT_EQ(Probe(Rate(3)), "a tcp");
  const auto old = Choose("a");
  table_.SetPeers({Peer("a", 2)}, now_);
  EXPECT_EQ(Choose("a").endpoint.transport, "shm");
  table_.Ended(old.use, absl::UnavailableError("lost"), now_);  // says nothing of the new one
  EXPECT_EQ(LinkOf("a", "shm").fallbacks, 0u);
  table_.SetPeers({}, now_);
  EXPECT_THAT(table_.Describe({}), testing::IsEmpty());
}

TEST_F(PeerTableTest, WhoIsNamedWhileStreamsGoThereIsTheSame) {
  const auto stream = Choose("a");
  table_.SetPeers({Peer("a")}, now_);
  EXPECT_TRUE(LinkOf("a", "shm").in_use);
  EXPECT_EQ(Probe(Rate(1)), "none");  // the stream is open
  table_.Ended(stream.use, absl::UnavailableError("lost"), now_);
  EXPECT_EQ(Choose("a").endpoint.transport, "tcp");
}

TEST_F(PeerTableTest, AProbeWaitsForTheStreamsButNotForEver) {
  table_.SetPeers({Peer("a")}, now_);
  const auto stream = Choose("a");
  const auto next = table_.NextProbe(now_);
  EXPECT_FALSE(next.job.has_value());
  EXPECT_EQ(next.ask_again, now_ + PeerTable::kProbePatience);
  now_ += PeerTable::kProbePatience;
  EXPECT_EQ(Probe(Rate(2)), "a shm");
  table_.SetPeers({Peer("b")}, now_);
  const auto other = Choose("b");
  EXPECT_EQ(Probe(Rate(2)), "none");
  table_.Ended(other.use, absl::OkStatus(), now_);
  EXPECT_EQ(Probe(Rate(2)), "b shm");
}

TEST_F(PeerTableTest, AFailedProbeIsRepeatedAFewTimesAndKeepsStreamsAway) {
  table_.SetPeers({Peer("a")}, now_);
  EXPECT_EQ(Probe(absl::UnavailableError("no room")), "a shm");
  EXPECT_EQ(Choose("a").endpoint.transport, "tcp");
  EXPECT_EQ(LinkOf("a", "tcp").fallbacks, 1u);
  EXPECT_EQ(LinkOf("a", "tcp").fallback_reason, "no room");
  now_ += PeerTable::kProbePatience;
  EXPECT_EQ(Probe(Rate(2)), "a shm");  // at last
  EXPECT_EQ(Choose("a").endpoint.transport, "shm");
  for (int i = 0; i < PeerTable::kProbeTries; ++i) {
    EXPECT_EQ(Probe(absl::DataLossError("spoiled")), "a tcp") << i;
    EXPECT_EQ(Probe(Rate(2)), "none");
    now_ += PeerTable::kProbePause;
  }
  EXPECT_EQ(Probe(Rate(2)), "none");
}

// The room for it may have become free: nobody would tell. Less and less often, since each try may
// take something of the peer.
TEST_F(PeerTableTest, AWayWhoseProbesFailIsProbedAgainForEver) {
  table_.SetPeers({Peer("a")}, now_);
  EXPECT_EQ(Probe(absl::UnavailableError("no room")), "a shm");
  EXPECT_EQ(Probe(Rate(3)), "a tcp");
  for (int i = 1; i < PeerTable::kProbeTries; ++i) {
    now_ += PeerTable::kProbePause;
    EXPECT_EQ(Probe(absl::UnavailableError("no room")), "a shm") << i;
  }
  Duration pause = PeerTable::kLaterProbePause;
  for (int i = 0; i < 10; ++i) {
    now_ += pause - milliseconds(1);
    table_.LookForReprobes({}, now_);
    EXPECT_EQ(Probe(Rate(2)), "none") << i;
    now_ += milliseconds(1);
    table_.LookForReprobes({}, now_);
    const auto next = table_.NextProbe(now_);
    ASSERT_TRUE(next.job.has_value()) << i;
    EXPECT_EQ(next.job->endpoint.transport, "shm");
    EXPECT_TRUE(next.job->later);
    table_.Probed(*next.job, absl::UnavailableError("no room"), {}, now_);
    pause = std::min(2 * pause, PeerTable::kLongestProbePause);
  }
  EXPECT_EQ(pause, PeerTable::kLongestProbePause);
  EXPECT_EQ(Choose("a").endpoint.transport, "tcp");
  EXPECT_EQ(LinkOf("a", "tcp").fallbacks, 1u);
  EXPECT_EQ(LinkOf("a", "tcp").fallback_reason, "no room");
  now_ += PeerTable::kLongestProbePause + PeerTable::kProbePatience;
  table_.LookForReprobes({}, now_ - PeerTable::kProbePatience);
  EXPECT_EQ(Probe(Rate(4)), "a shm");
  EXPECT_EQ(Choose("a").endpoint.transport, "shm");
}

TEST_F(PeerTableTest, APeerThatIsBusyWithProbesIsNotLeft) {
  table_.SetPeers({Peer("a")}, now_);
  EXPECT_EQ(Probe(absl::ResourceExhaustedError("8 probes already")), "a shm");
  EXPECT_EQ(Probe(Rate(3)), "a tcp");
  EXPECT_EQ(Choose("a").endpoint.transport, "shm")
      << "better by nature, and nothing is known of it";
  EXPECT_EQ(LinkOf("a", "shm").fallbacks, 0u);
}

TEST_F(PeerTableTest, APeerThatIsBusyIsProbedSoonAndAsOftenAsItTakes) {
  table_.SetPeers({Peer("a")}, now_);
  for (int i = 0; i < 5 * PeerTable::kProbeTries; ++i) {
    EXPECT_EQ(Probe(absl::ResourceExhaustedError("another worker probes")), "a shm") << i;
    if (i == 0) {
      EXPECT_EQ(Probe(Rate(3)), "a tcp");
    }
    EXPECT_EQ(Probe(Rate(2)), "none") << i;
    now_ += PeerTable::kBusyPause;
  }
  EXPECT_EQ(LinkOf("a", "shm").probe_failure, "") << "nothing is wrong with the link";
  EXPECT_EQ(Probe(Rate(4)), "a shm");
  EXPECT_EQ(LinkOf("a", "shm").fallbacks, 0u);
}

TEST_F(PeerTableTest, AWayThatDamagesStreamsIsLeftAndProbedLater) {
  table_.SetPeers({Peer("a")}, now_);
  EXPECT_EQ(Probe(Rate(4)), "a shm");
  EXPECT_EQ(Probe(Rate(3)), "a tcp");
  table_.Ended(Choose("a").use, absl::DataLossError("misses 3 extents"), now_);
  const auto other = Choose("a");
  EXPECT_EQ(other.endpoint.transport, "tcp");
  EXPECT_EQ(LinkOf("a", "tcp").fallbacks, 1u);
  EXPECT_EQ(LinkOf("a", "shm").failure, "misses 3 extents");
  table_.Ended(other.use, absl::OkStatus(), now_);
  now_ += PeerTable::kLaterProbePause - milliseconds(1);
  table_.LookForReprobes({}, now_);
  EXPECT_EQ(Probe(Rate(4)), "none");
  EXPECT_EQ(Choose("a").endpoint.transport, "tcp");
  now_ += milliseconds(1);
  table_.LookForReprobes({}, now_);
  now_ += PeerTable::kProbePatience;
  EXPECT_EQ(Probe(absl::DataLossError("0 of 1 frames")), "a shm");
  EXPECT_EQ(Choose("a").endpoint.transport, "tcp");
  now_ += 2 * PeerTable::kLaterProbePause;
  table_.LookForReprobes({}, now_);
  now_ += PeerTable::kProbePatience;
  EXPECT_EQ(Probe(Rate(4)), "a shm");
  EXPECT_EQ(Choose("a").endpoint.transport, "shm");
  EXPECT_GT(LinkOf("a", "shm").stats.probe_gigabytes_per_second, 0);
}

TEST_F(PeerTableTest, AWayThatFailedSaysWhyUntilItWorks) {
  table_.SetPeers({Peer("a")}, now_);
  EXPECT_EQ(Probe(absl::FailedPreconditionError("a foreign certificate")), "a shm");
  EXPECT_EQ(LinkOf("a", "shm").failure, "a foreign certificate");
  EXPECT_EQ(LinkOf("a", "tcp").failure, "");
  now_ += PeerTable::kProbePause;
  EXPECT_EQ(Probe(Rate(2)), "a shm");
  EXPECT_EQ(LinkOf("a", "shm").failure, "");
  auto stream = Choose("a");
  table_.Ended(stream.use, absl::UnavailableError("cut"), now_);
  EXPECT_EQ(LinkOf("a", "shm").failure, "cut");
  now_ += LinkSelector::kFirstBackOff;
  stream = Choose("a");
  table_.Ended(stream.use, absl::CancelledError("by the client"), now_);
  EXPECT_EQ(LinkOf("a", "shm").failure, "cut") << "says nothing of the way";
  now_ += LinkSelector::kFirstBackOff;
  stream = Choose("a");
  table_.Ended(stream.use, absl::OkStatus(), now_);
  EXPECT_EQ(LinkOf("a", "shm").failure, "");
}

TEST_F(PeerTableTest, ANewConnectionIsProbedAgainAfterAPause) {
  table_.SetPeers({Peer("a")}, now_);
  LinkStats link = {.peer = "s", .transport = "shm", .connects = 1};
  EXPECT_EQ(Probe(Rate(2), link), "a shm");
  EXPECT_EQ(Probe(Rate(1)), "a tcp");
  table_.LookForReprobes({{link}}, now_);
  EXPECT_EQ(Probe(Rate(2)), "none");
  link.connects = 2;
  table_.LookForReprobes({{link}}, now_);
  EXPECT_EQ(Probe(Rate(2)), "none");
  EXPECT_EQ(table_.NextProbe(now_).ask_again, now_ + PeerTable::kProbePause);
  now_ += PeerTable::kProbePause;
  EXPECT_EQ(Probe(Rate(2), link), "a shm");
}

TEST_F(PeerTableTest, ALinkFarBelowItsBestProbeIsProbedAgain) {
  table_.SetPeers({Peer("a")}, now_);
  EXPECT_EQ(Probe(Rate(4)), "a shm");
  EXPECT_EQ(Probe(Rate(3)), "a tcp");
  now_ += PeerTable::kLaterProbePause;
  table_.LookForReprobes({{At(0)}}, now_);
  EXPECT_EQ(Probe(Rate(1)), "none") << "nothing was measured of late";
  table_.LookForReprobes({{At(1.1)}}, now_);
  EXPECT_EQ(Probe(Rate(1)), "none") << "a quarter of the best probe is fast enough";
  table_.LookForReprobes({{At(0.9)}}, now_);
  EXPECT_EQ(Probe(Rate(0.5)), "a shm");
  EXPECT_EQ(Choose("a").endpoint.transport, "tcp") << "which is faster now";
  const LinkStats slow = LinkOf("a", "shm").stats;
  EXPECT_DOUBLE_EQ(slow.probe_gigabytes_per_second, 0.5);
  EXPECT_DOUBLE_EQ(slow.best_gigabytes_per_second, 4);
  table_.LookForReprobes({{At(0.5)}}, now_ + PeerTable::kLaterProbePause - milliseconds(1));
  EXPECT_EQ(Probe(Rate(1)), "none");
  now_ += PeerTable::kLaterProbePause + PeerTable::kProbePatience;
  table_.LookForReprobes({{At(0.5)}}, now_ - PeerTable::kProbePatience);
  EXPECT_EQ(Probe(Rate(4)), "a shm") << "the best probe stays the measure";
  EXPECT_EQ(Choose("a").endpoint.transport, "shm");
  table_.SetPeers({Peer("a", 2)}, now_);
  EXPECT_DOUBLE_EQ(LinkOf("a", "shm").stats.best_gigabytes_per_second, 0) << "another process";
}

TEST_F(PeerTableTest, AProbeThatFoundAConnectionKeepsTheEarlierSetup) {
  table_.SetPeers({Peer("a")}, now_);
  EXPECT_EQ(Probe(LinkProbe{.gigabytes_per_second = 2}), "a shm");
  EXPECT_EQ(LinkOf("a", "shm").stats.probe_setup, Duration(0)) << "not known";
  LinkStats link = {.peer = "s", .transport = "shm"};
  const auto probe_again = [&](std::optional<Duration> setup) {
    ++link.connects;
    table_.LookForReprobes({{link}}, now_);
    now_ += PeerTable::kProbePause;
    EXPECT_EQ(Probe({{.gigabytes_per_second = 2, .setup = setup}}, link), "a shm");
    return LinkOf("a", "shm").stats.probe_setup;
  };
  EXPECT_EQ(probe_again(milliseconds(3)), milliseconds(3));
  EXPECT_EQ(probe_again(std::nullopt), milliseconds(3));
  EXPECT_EQ(probe_again(milliseconds(2)), milliseconds(2));
}

TEST_F(PeerTableTest, AProbeThatFailedSaysWhyUntilOneSucceeds) {
  table_.SetPeers({Peer("a")}, now_);
  EXPECT_EQ(Probe(absl::DeadlineExceededError("too slow")), "a shm");
  EXPECT_EQ(LinkOf("a", "shm").probe_failure, "DEADLINE_EXCEEDED: too slow");
  EXPECT_EQ(LinkOf("a", "shm").failure, "") << "it can be reached";
  table_.Ended(Choose("a").use, absl::OkStatus(), now_);
  EXPECT_EQ(LinkOf("a", "shm").probe_failure, "DEADLINE_EXCEEDED: too slow");
  now_ += PeerTable::kProbePause;
  EXPECT_EQ(Probe(Rate(2)), "a shm");
  EXPECT_EQ(LinkOf("a", "shm").probe_failure, "");
}

TEST_F(PeerTableTest, CountsOfAPeerBeginAnewWhenItRestarts) {
  table_.SetPeers({Peer("a")}, now_);
  table_.Ended(Choose("a").use, absl::UnavailableError("cut"), now_);
  Choose("a");
  EXPECT_EQ(LinkOf("a", "shm").fallbacks, 1u);
  table_.SetPeers({Peer("a", 2)}, now_);
  EXPECT_EQ(LinkOf("a", "shm").fallbacks, 0u);
  EXPECT_EQ(LinkOf("a", "shm").fallback_reason, "");
}

TEST_F(PeerTableTest, WaysThatCannotBeReachedAreShownAndToldOfOnce) {
  KnownPeer far = Peer("a");
  far.endpoints = {{"tcp", "t"}};
  far.unreachable = {{.endpoint = {"shm", "s"}, .reason = "another host"}};
  const auto told = table_.SetPeers({far}, now_);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].peer, "a");
  EXPECT_EQ(told[0].stats.transport, "shm");
  EXPECT_THAT(table_.SetPeers({far}, now_), testing::IsEmpty());
  EXPECT_EQ(LinkOf("a", "shm").unreachable, "another host");
  EXPECT_EQ(LinkOf("a", "shm").failure, "");
  EXPECT_EQ(LinkOf("a", "tcp").unreachable, "");
  far.endpoints.clear();  // none is left: still shown
  table_.SetPeers({far}, now_);
  EXPECT_EQ(table_.Describe({}).size(), 1u);
  table_.SetPeers({}, now_);
  EXPECT_THAT(table_.Describe({}), testing::IsEmpty());
}

TEST_F(PeerTableTest, PeersThatNobodyNamedAreForgottenFromTheOldest) {
  for (size_t i = 0; i <= PeerTable::kMaxUnnamed; ++i) Choose(std::to_string(i));
  EXPECT_EQ(table_.Describe({}).size(), PeerTable::kMaxUnnamed * kEndpoints.size());
  EXPECT_EQ(LinkOf("at 1", "shm").peer, "at 1");
}

}  // namespace
}  // namespace tandem::peer_table_test
