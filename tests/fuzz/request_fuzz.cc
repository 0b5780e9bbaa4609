// What clients and workers say to a router, of foreign bytes. The first byte chooses: a request of
// a client, or what workers say one after the other, each message behind a byte for its kind and
// one for its length.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/sampling_params.h"
#include "router/cluster/cluster.h"
#include "router/explain/decision_log.h"
#include "router/policy/policies.h"
#include "router/policy/routing_policy.h"
#include "router/prefix/prefix_index.h"
#include "router/request/request_validation.h"
#include "server/services/parse_message.h"
#include "tests/fuzz/steps.h"
#include "tests/support/fake_clock.h"

namespace tandem {
namespace {

const RequestLimits& Limits() {
  static const RequestLimits limits = {.model = "sample",
                                       .vocab_size = 1000,
                                       .max_context_tokens = 512,
                                       .eos_token_ids = {2, 7},
                                       .has_tokenizer = true};
  return limits;
}

void CheckSampling(const v1::SamplingParams& params) {
  TANDEM_CHECK(params.temperature() >= 0 && std::isfinite(params.temperature()), "temperature");
  TANDEM_CHECK(params.top_k() >= 0, "top_k");
  TANDEM_CHECK(params.top_p() > 0 && params.top_p() <= 1, "top_p");
  TANDEM_CHECK(params.min_p() >= 0 && params.min_p() < 1, "min_p");
  TANDEM_CHECK(params.repetition_penalty() > 0 && std::isfinite(params.repetition_penalty()),
               "repetition_penalty");
  TANDEM_CHECK(std::abs(params.presence_penalty()) <= 2, "presence_penalty");
  TANDEM_CHECK(std::abs(params.frequency_penalty()) <= 2, "frequency_penalty");
  TANDEM_CHECK(params.logprobs() >= 0 && params.logprobs() <= kMaxLogprobs, "logprobs");
}

// What is let through can be looked up at bounded cost.
void OfAnInquirer(std::string_view bytes) {
  v1::ExplainRequest request;
  if (!ParseMessage(bytes, request).ok() || !ValidateExplain(request).ok()) return;
  TANDEM_CHECK(request.has_latest()
                   ? request.latest() >= 1 && request.latest() <= DecisionLog::kMaxLatest
                   : !request.request_id().empty() && request.request_id().size() <= 128,
               "an explanation of anything");
}

// What is let through is what a worker can take.
void OfAClient(std::string_view bytes) {
  OfAnInquirer(bytes);
  v1::GenerateRequest request;
  if (!ParseMessage(bytes, request).ok() || !ValidateRequest(request, Limits()).ok()) return;
  for (const int32_t id : request.token_ids().ids()) {
    TANDEM_CHECK(id >= 0 && id < Limits().vocab_size, "a token that there is not");
  }
  CheckSampling(ResolveSampling(request.sampling(), 1));
  const std::vector<int32_t> stops = ResolveStopTokens(request, Limits());
  TANDEM_CHECK(std::ranges::is_sorted(stops) && std::ranges::adjacent_find(stops) == stops.end(),
               "stop tokens out of order");
  TANDEM_CHECK(stops.empty() || (stops.front() >= 0 && stops.back() < Limits().vocab_size),
               "a stop token that there is not");
  const int32_t choices = ResolveChoices(request);
  TANDEM_CHECK(choices >= 1 && choices <= Limits().max_choices, "choices");
  if (request.has_beam_search()) {
    const v1::BeamSearch beams = ResolveBeams(request);
    TANDEM_CHECK(beams.beam_width() >= choices && beams.beam_width() <= kMaxBeamWidth &&
                     std::isfinite(beams.length_penalty()),
                 "beams");
  }
  for (const int64_t prompt_tokens : {0, 1, 511, 512}) {
    const auto most = ResolveMaxTokens(request, prompt_tokens, Limits());
    TANDEM_CHECK(!most.ok() || (*most >= 1 && prompt_tokens + *most <= 512), "max_tokens");
  }
}

PolicyOptions Options() {
  return {.classic = ClassicCoefficients{
              .alpha_ms = 0.1, .beta_ms = 10, .gamma_ms = 0.1, .bandwidth_gb_per_s = 1}};
}

std::vector<std::unique_ptr<RoutingPolicy>> EveryPolicy(const PolicyParts& parts) {
  std::vector<std::unique_ptr<RoutingPolicy>> policies;
  for (const std::string& name : RoutingPolicyNames()) {
    auto policy = NewRoutingPolicy(name, parts);
    TANDEM_CHECK(policy.ok(), "a policy that cannot be made");
    policies.push_back(*std::move(policy));
  }
  return policies;
}

// A router's cluster, and workers that are not what they say.
class HostileWorkers {
 public:
  void Say(uint64_t kind, std::string_view bytes) {
    switch (kind % 4) {
      case 0:
        return Register(bytes);
      case 1:
        return Heartbeat(bytes);
      case 2:
        return Deregister(bytes);
      default:
        clock_.Advance(std::chrono::milliseconds(10 * bytes.size()));
        cluster_.Expire();
        cluster_.TakeReplaced();
    }
  }

  // Routes go to workers that there are, whatever they said of themselves.
  void Route() {
    const auto view = cluster_.View();
    std::set<std::string> names;
    for (const WorkerView& worker : view->workers) {
      TANDEM_CHECK(names.insert(worker.id.name).second, "two workers of one name");
      TANDEM_CHECK(worker.Sequences() >= 0 && worker.PendingPromptTokens() >= 0 &&
                       worker.AvailableBlocks() >= 0,
                   "a load of less than nothing");
    }
    for (const WorkerView& worker : view->workers) {
      for (const v1::KvPeer& peer : view->KvPeersOf(worker)) {
        TANDEM_CHECK(names.contains(peer.name()), "a peer that there is not");
      }
    }
    ledger_.OnReports(*view);
    for (const auto& policy : policies_) {
      for (const v1::Route wanted : {v1::ROUTE_AUTO, v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
        const auto decision = policy->Choose(*view, {.wanted = wanted, .prompt_tokens = 5});
        if (decision.ok()) TANDEM_CHECK(names.contains(decision->prefill.name), "a stranger");
      }
    }
  }

 private:
  void Register(std::string_view bytes) {
    v1::RegisterRequest request;
    if (ParseMessage(bytes, request).ok()) (void)cluster_.Register(request);
  }
  void Heartbeat(std::string_view bytes) {
    v1::HeartbeatRequest request;
    if (!ParseMessage(bytes, request).ok()) return;
    if (request.has_cache() && !PrefixIndex::Check(request.cache(), 8).ok()) return;
    if (!cluster_.Heartbeat(request).ok() || !request.has_cache()) return;
    const WorkerId id{request.name(), request.incarnation()};
    const uint64_t latest = prefixes_.Apply(id, request.cache());
    TANDEM_CHECK(latest == prefixes_.Latest(id), "another report than the one applied");
    TANDEM_CHECK(prefixes_.Use().bytes() <= kIndexBytes, "more memory than the index has");
  }
  void Deregister(std::string_view bytes) {
    v1::DeregisterRequest request;
    if (!ParseMessage(bytes, request).ok()) return;
    cluster_.Deregister(request.name(), request.incarnation());
  }

  static constexpr size_t kIndexBytes = 1000;

  FakeClock clock_;
  Cluster cluster_{{.model = "sample"}, clock_};
  PrefixIndex prefixes_{kIndexBytes};
  RequestLedger ledger_{clock_};
  const std::vector<std::unique_ptr<RoutingPolicy>> policies_ =
      EveryPolicy({.clock = clock_, .ledger = ledger_, .options = Options()});
};

std::string_view Text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  if (size == 0) return 0;
  const auto rest = std::span(data, size).subspan(1);
  if (data[0] % 2 == 0) {
    OfAClient(Text(rest));
    return 0;
  }
  HostileWorkers workers;
  for (Steps steps(rest); !steps.done(); workers.Route()) {
    const uint64_t kind = steps.Take(1);
    workers.Say(kind, Text(steps.TakeBytes(steps.Take(1))));
  }
  return 0;
}
