#pragma once

#include <cstdint>
#include <vector>

#include "router/attempt/attempt_workers.h"
#include "router/attempt/streamed_output.h"
#include "router/request/request_spec.h"
#include "tandem/v1/kv_transfer.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Makes the messages that one attempt sends to its workers. Where `continued` is not null, the
// worker is asked to continue after the tokens in it.
class WorkerRequests {
 public:
  // `number` counts the attempts of a request from 1. `spec` and `workers` outlive the object.
  WorkerRequests(const RequestSpec& spec, const AttemptWorkers& workers, uint64_t number);

  v1::GenerateOnWorkerRequest Generate(const StreamedOutput* continued) const;
  v1::ReserveRequest Reserve() const;
  v1::PrefillRequest Prefill(const v1::KvTarget& target) const;
  // first_tokens: the tokens with which decode begins; see v1::DecodeRequest.
  v1::DecodeRequest Decode(const v1::KvTarget& target, std::vector<v1::TokenLogprobs> first_tokens,
                           const StreamedOutput* continued) const;
  v1::EndChoiceRequest EndChoice(int32_t index) const;
  static v1::ReleaseRequest Release(const v1::KvTarget& target);

 private:
  v1::SequenceRequest Sequence() const;

  const RequestSpec& spec_;
  const AttemptWorkers& workers_;
  const uint64_t id_;  // the request's id at the workers
};

}  // namespace tandem
