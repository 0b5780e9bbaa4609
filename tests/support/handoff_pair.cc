#include "tests/support/handoff_pair.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kvstore/kv_convert.h"
#include "tests/support/tcp_transport.h"

namespace tandem {
namespace {

std::unique_ptr<Transport> NewTransport(LoopbackNetwork& network, Wire wire, TestEngine& engine) {
  const FramedOptions framed = {
      .device = &engine.device(),
      .staged_payload_bytes = static_cast<size_t>(LargestExtentBytesTo(engine.layout()))};
  FrameReceiver* const receiver = engine->frame_receiver();
  if (wire == Wire::kLoopback) return network.NewTransport(receiver, framed);
  auto transport = OpenTcpTransport({}, receiver, framed);
  TANDEM_CHECK(transport.ok(), transport.status().ToString());
  return *std::move(transport);
}

std::unique_ptr<TestEngine> NewEngine(TestEngineSetup setup, Role role, LoopbackNetwork& network,
                                      Wire wire) {
  setup.role = role;
  auto engine = std::make_unique<TestEngine>(setup);
  engine->Connect(NewTransport(network, wire, *engine));
  return engine;
}

}  // namespace

std::vector<int32_t> Disaggregated::token_ids(int32_t index) const {
  std::vector<int32_t> ids = prefill.token_ids(index);
  const std::vector<int32_t> rest = decode.token_ids(index);
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

HandoffPair::HandoffPair(const TestEngineSetup& prefill, const TestEngineSetup& decode, Wire wire)
    : prefill_(NewEngine(prefill, Role::kPrefill, network_, wire)),
      decode_(NewEngine(decode, Role::kDecode, network_, wire)) {}

absl::StatusOr<Disaggregated*> HandoffPair::Start(EngineRequest request) {
  ASSIGN_OR_RETURN(const Reservation reservation, decode_->ReserveFor(request, prefill_->layout()));
  return Start(std::move(request), reservation);
}

absl::StatusOr<Disaggregated*> HandoffPair::StartIfThereIsRoom(EngineRequest request) {
  ReserveRequest wanted = decode_->ReservationFor(request);
  wanted.layout = prefill_->layout();
  ASSIGN_OR_RETURN(const Reservation reservation, decode_->ReserveAtOnce(wanted));
  return Start(std::move(request), reservation);
}

Disaggregated* HandoffPair::Start(EngineRequest request, const Reservation& reservation) {
  Disaggregated& run = runs_.emplace_back();
  run.request = std::move(request);
  run.reservation = reservation;
  (*prefill_)->SubmitPrefill(run.request,
                             {.data_address = decode_->transport().address(),
                              .reservation = reservation.id,
                              .epoch = reservation.epoch,
                              .cached_tokens = reservation.cached_tokens,
                              .stored_tokens = reservation.stored_tokens,
                              .lease = reservation.lease,
                              .reads = reservation.reads},
                             run.prefill.NewSink());
  return &run;
}

void HandoffPair::Continue(Disaggregated& run) {
  // Beams of one token end where they begin, and that is seen only once they have.
  if (run.request.beams && run.request.max_tokens == 1) run.prefill.AwaitFinish();
  const bool first =
      run.prefill.AwaitFirstTokens(run.request.beams ? 1 : static_cast<size_t>(run.request.n));
  const bool ended =
      run.prefill.finished() && run.prefill.AwaitFinish().reason != FinishReason::kHandedOff;
  if (!first || ended) {
    (*decode_)->Release(run.reservation.id);
    return;
  }
  run.claimed = true;
  (*decode_)->SubmitDecode({.request = run.request,
                            .reservation = run.reservation.id,
                            .first_tokens = run.prefill.first_tokens()},
                           run.decode.NewSink());
}

absl::Status HandoffPair::AwaitEnd(Disaggregated& run) {
  const absl::Status prefill = run.prefill.AwaitFinish().status;
  if (!prefill.ok()) {
    (*decode_)->Release(run.reservation.id);
    (*decode_)->Cancel(run.request.id, prefill);
  }
  if (!run.claimed) return prefill;
  const absl::Status decode = run.decode.AwaitFinish().status;
  return prefill.ok() ? decode : prefill;
}

}  // namespace tandem
