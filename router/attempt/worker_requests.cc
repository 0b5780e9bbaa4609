#include "router/attempt/worker_requests.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// Every attempt has its own request id, because the worker may still be cancelling the previous
// attempt.
uint64_t IdOfAttempt(const RequestSpec& spec, uint64_t number) {
  return spec.sequence.request_id() ^ ((number - 1) << 48);
}

template <typename Request>
void AddEmitted(const StreamedOutput* output, int32_t num_choices, Request& request) {
  if (output == nullptr) return;
  for (int32_t i = 0; i < num_choices; ++i) *request.add_so_far() = output->Emitted(i);
}

}  // namespace

WorkerRequests::WorkerRequests(const RequestSpec& spec, const AttemptWorkers& workers,
                               uint64_t number)
    : spec_(spec), workers_(workers), id_(IdOfAttempt(spec, number)) {}

v1::SequenceRequest WorkerRequests::Sequence() const {
  v1::SequenceRequest sequence = spec_.sequence;
  sequence.set_request_id(id_);
  return sequence;
}

v1::GenerateOnWorkerRequest WorkerRequests::Generate(const StreamedOutput* continued) const {
  v1::GenerateOnWorkerRequest request;
  *request.mutable_sequence() = Sequence();
  request.set_epoch(workers_.prefill.id.incarnation);
  AddEmitted(continued, spec_.sequence.n(), request);
  return request;
}

v1::ReserveRequest WorkerRequests::Reserve() const {
  v1::ReserveRequest request;
  request.set_request_id(id_);
  *request.mutable_prompt() = spec_.sequence.prompt();
  request.set_max_tokens(std::max(spec_.sequence.max_tokens(), 1));  // reserves at least one token
  request.set_width(spec_.width());
  request.set_priority(spec_.sequence.priority());
  request.set_tenant(spec_.sequence.tenant());
  request.set_cache_salt(spec_.sequence.cache_salt());
  request.set_kv_quality(spec_.sequence.kv_quality());
  request.set_kv_eviction(spec_.sequence.kv_eviction());
  *request.mutable_layout() = workers_.prefill.info->layout;
  request.set_model_fingerprint(workers_.prefill.info->model_fingerprint);
  request.set_epoch(workers_.decode->id.incarnation);
  return request;
}

v1::PrefillRequest WorkerRequests::Prefill(const v1::KvTarget& target) const {
  v1::PrefillRequest request;
  *request.mutable_sequence() = Sequence();
  request.mutable_sequence()->set_client_request_id(spec_.id);
  *request.mutable_target() = target;
  request.set_epoch(workers_.prefill.id.incarnation);
  return request;
}

v1::DecodeRequest WorkerRequests::Decode(const v1::KvTarget& target,
                                         std::vector<v1::TokenLogprobs> first_tokens,
                                         const StreamedOutput* continued) const {
  v1::DecodeRequest request;
  *request.mutable_sequence() = Sequence();
  request.set_reservation_id(target.reservation_id());
  request.set_epoch(target.epoch());
  for (v1::TokenLogprobs& first : first_tokens) *request.add_first_tokens() = std::move(first);
  AddEmitted(continued, spec_.sequence.n(), request);
  return request;
}

v1::EndChoiceRequest WorkerRequests::EndChoice(int32_t index) const {
  v1::EndChoiceRequest request;
  request.set_request_id(id_);
  request.set_index(index);
  return request;
}

v1::ReleaseRequest WorkerRequests::Release(const v1::KvTarget& target) {
  v1::ReleaseRequest request;
  request.set_reservation_id(target.reservation_id());
  request.set_epoch(target.epoch());
  return request;
}

}  // namespace tandem
