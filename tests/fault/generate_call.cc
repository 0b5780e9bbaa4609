#include "tests/fault/generate_call.h"

#include <utility>

#include "fmt/format.h"
#include "server/services/status_mapping.h"

namespace tandem {

GenerateCall::GenerateCall(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
                           Duration timeout, std::function<void()> moved)
    : moved_(std::move(moved)) {
  context_.set_wait_for_ready(true);
  context_.set_deadline(std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
  thread_ = std::thread([this, &stub, request] { Run(stub, request); });
}

GenerateCall::~GenerateCall() { thread_.join(); }

void GenerateCall::Run(v1::Inference::Stub& stub, const v1::GenerateRequest& request) {
  const auto reader = stub.Generate(&context_, request);
  v1::GenerateResponse event;
  while (reader->Read(&event)) Note(event);
  const absl::Status status = ToAbslStatus(reader->Finish());
  {
    absl::MutexLock lock(&mutex_);
    status_ = status;
    ended_ = true;
  }
  moved_();
}

std::string GenerateCall::DisorderOf(const v1::GenerateResponse& event) const {
  if (has_summary_) return "something after the summary";
  if (event.has_summary()) return "";
  const int32_t index = event.has_chunk() ? event.chunk().index() : event.finish().index();
  if (!finished_.contains(index)) return "";
  return fmt::format("{} of choice {} after its finish", event.has_chunk() ? "tokens" : "a finish",
                     index);
}

void GenerateCall::Note(const v1::GenerateResponse& event) {
  {
    absl::MutexLock lock(&mutex_);
    if (disorder_.empty()) disorder_ = DisorderOf(event);
    generation_.Add(event);
    if (event.has_chunk()) tokens_ += static_cast<size_t>(event.chunk().token_ids_size());
    if (event.has_finish()) finished_.insert(event.finish().index());
    if (event.has_summary()) has_summary_ = true;
  }
  moved_();
}

size_t GenerateCall::tokens() const {
  absl::MutexLock lock(&mutex_);
  return tokens_;
}

bool GenerateCall::ended() const {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

bool GenerateCall::AwaitTokens(size_t tokens) const {
  const auto there = [this, tokens]()
                         ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return tokens_ >= tokens || ended_; };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&there));
  return !ended_;
}

void GenerateCall::AwaitEnd() const {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&ended_));
}

}  // namespace tandem
