// What a router does with the index of prefixes and with sessions, among workers of the test.
#include "router/prefix/prefix_index.h"
#include "router/prefix/session_table.h"
#include "tests/support/cached_worker.h"
#include "tests/support/router_fixture.h"

namespace tandem::prefix_routing_test {
namespace {

using ::testing::ElementsAre;

class PrefixRoutingTest : public RouterFixture {
 protected:
  PrefixRoutingTest() {
    for (const char* name : {"u0", "u1"}) {
      v1::RegisterRequest worker = Registration(name, v1::WORKER_ROLE_UNIFIED);
      worker.set_prefix_root(kTestSpace.root);
      worker.mutable_layout()->set_block_tokens(kTestSpace.block_tokens);
      Join(worker);
    }
    RouterParts parts = Parts(tokenizer_);
    parts.prefixes = &index_;
    parts.sessions = &sessions_;
    routing_ = std::make_unique<Router>(Options(), parts);
    routing_->Start();
    loop_.RunReady();
  }

  static v1::GenerateRequest AskUnified(const std::vector<int32_t>& prompt) {
    v1::GenerateRequest request;
    request.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
    request.set_max_tokens(4);
    request.set_route(v1::ROUTE_UNIFIED);
    return request;
  }
  void Begin(const v1::GenerateRequest& request, RecordingStream& stream) {
    ASSERT_TRUE(routing_->Submit(request, kNoDeadline, stream).ok());
    loop_.RunReady();
  }
  int64_t ChargedTokens(const std::string& name) {
    return cluster_.View()->Find({name, 1})->charged.prompt_tokens;
  }

  PrefixIndex index_{1 << 20};
  SessionTable sessions_;
  std::unique_ptr<Router> routing_;
  RecordingStream other_stream_;
  const std::vector<int32_t> prompt_ = PromptFrom(1, 40);
};

TEST_F(PrefixRoutingTest, ARequestIsChargedForWhatItsWorkerHasNotCached) {
  Begin(AskUnified(prompt_), stream_);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  EXPECT_EQ(ChargedTokens("u0"), 40);
  std::vector<int32_t> longer = PromptFrom(1, 56);
  ASSERT_EQ(index_.Find(*Hashed(longer)).size(), 1u) << "it will be cached when it is computed";
  Say("generate u0", {10});
  EXPECT_EQ(ChargedTokens("u0"), 0);
  Finish("generate u0", kStop);
  EXPECT_EQ(index_.Use().prompt_tokens(), 40u);
  EXPECT_EQ(index_.Use().predicted_tokens(), 0u);
  EXPECT_EQ(index_.Use().cached_tokens(), 2u) << "as the worker has said";
  cluster_.Deregister("u1", 1);  // the two would take turns
  loop_.RunReady();
  Begin(AskUnified(longer), other_stream_);
  EXPECT_EQ(ChargedTokens("u0"), 16);
  Say("generate u0", {10});
  Finish("generate u0", kStop);
  EXPECT_EQ(index_.Use().predicted_tokens(), 40u);
  ExpectNothingLeft();
}

TEST_F(PrefixRoutingTest, ARequestThatFailsBeforeItsPromptIsComputedLeavesNoHit) {
  Begin(AskUnified(prompt_), stream_);
  EXPECT_EQ(index_.Find(*Hashed(prompt_)).size(), 1u);
  End("generate u0", absl::InvalidArgumentError("no"), kWorker);
  EXPECT_EQ(index_.Find(*Hashed(prompt_)).size(), 0u);
}

TEST_F(PrefixRoutingTest, ATextIsHashedOnceItIsTokenized) {
  v1::GenerateRequest request = AskUnified({});
  request.set_text("aaaaaaaabbbbbbbbcc");
  request.set_cache_salt("salt");
  Begin(request, stream_);
  std::vector<int32_t> tokens(8, 'a');
  tokens.resize(16, 'b');
  const auto hits = index_.Find(*Hashed(tokens, "salt"));
  ASSERT_EQ(hits.size(), 1u);
  EXPECT_EQ(hits[0].tokens, 15);
  EXPECT_EQ(index_.Find(*Hashed(tokens)).size(), 0u) << "without the salt";
}

TEST_F(PrefixRoutingTest, AWorkerWhoseLeaseEndsIsForgotten) {
  index_.Apply({"u0", 1}, Added(0, 1, *Hashed(prompt_), 3));
  Pass(std::chrono::seconds(4));
  EXPECT_EQ(index_.Latest({"u0", 1}), 1u);
  Pass(std::chrono::seconds(2));
  EXPECT_EQ(index_.Latest({"u0", 1}), 0u);
  EXPECT_EQ(index_.Use().entries(), 0u);
}

TEST_F(PrefixRoutingTest, ASessionStaysWhereItIs) {
  v1::GenerateRequest request = AskUnified(prompt_);
  request.set_session_id("chat");
  Begin(request, stream_);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0")) << "which is busier than u1 now";
  Begin(request, other_stream_);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0", "generate u0"));
  RecordingStream third;
  request.set_session_id("");
  Begin(request, third);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0", "generate u0", "generate u1"));
  EXPECT_EQ(routing_->Status().sessions().kept(), 1u);
  EXPECT_EQ(routing_->Status().sessions().entries(), 1u);
  EXPECT_EQ(routing_->Status().prefix_index().lookups(), 3u);
  routing_.reset();  // before the streams
}

}  // namespace
}  // namespace tandem::prefix_routing_test
