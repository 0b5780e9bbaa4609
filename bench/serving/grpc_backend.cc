#include "bench/serving/grpc_backend.h"

#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "base/api_key.h"
#include "base/status.h"
#include "bench/serving/answer.h"
#include "bench/serving/prompt.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/client_callback.h"
#include "security/grpc/channel_tls.h"
#include "tandem/v1/inference.grpc.pb.h"

namespace tandem::loadgen {
namespace {

constexpr std::chrono::seconds kQuestionTimeout(5);
constexpr std::chrono::milliseconds kRetryInterval(50);
// Prompts for a server without a tokenizer have these ids alone.
constexpr size_t kIdsOfEveryVocabulary = 256;

// gRPC and absl have the same numbers for the same codes.
absl::Status ToAbsl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

v1::Route RouteNamed(std::string_view name) {
  if (name == "unified") return v1::ROUTE_UNIFIED;
  return name == "disaggregated" ? v1::ROUTE_DISAGGREGATED : v1::ROUTE_AUTO;
}

void AddApiKey(grpc::ClientContext& context) {
  static const std::string authorization = AuthorizationFromEnvironment();
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
}

// Reads one answer. gRPC calls it on its threads, one event after another.
class StreamReader final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  StreamReader(v1::GenerateRequest request, Duration timeout, CallObserver& observer)
      : request_(std::move(request)), timeout_(timeout), observer_(observer) {}

  static void Start(const std::shared_ptr<StreamReader>& reader, v1::Inference::Stub& stub) {
    AddApiKey(reader->context_);
    reader->context_.set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(reader->timeout_));
    reader->self_ = reader;  // until OnDone
    stub.async()->Generate(&reader->context_, &reader->request_, reader.get());
    reader->StartRead(&reader->event_);
    reader->StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const TimePoint now = std::chrono::steady_clock::now();
    if (event_.has_chunk() && event_.chunk().token_ids_size() > 0) {
      observer_.OnTokens(now, event_.chunk().token_ids_size());
    }
    if (event_.has_finish()) {
      finished_ = true;
      TakeFinish(event_.finish(), end_);
    }
    if (event_.has_summary()) {
      summarized_ = true;
      TakeSummary(event_.summary(), end_);
    }
    StartRead(&event_);
  }

  void OnDone(const grpc::Status& status) override {
    const TimePoint now = std::chrono::steady_clock::now();
    end_.status = ToAbsl(status);
    end_.whole = finished_ && summarized_;
    CallEnd end = std::move(end_);
    CallObserver& observer = observer_;
    // From here on the handle alone keeps this object. Whoever holds it may close the channel once
    // the observer knows the end, and the context must not be the last to use the channel, on a
    // thread that belongs to it.
    self_.reset();
    observer.OnEnd(now, std::move(end));
  }

 private:
  const v1::GenerateRequest request_;
  const Duration timeout_;
  CallObserver& observer_;
  grpc::ClientContext context_;
  v1::GenerateResponse event_;
  CallEnd end_;
  bool finished_ = false;
  bool summarized_ = false;
  std::shared_ptr<StreamReader> self_;
};

class GrpcCall final : public Call {
 public:
  GrpcCall(std::shared_ptr<StreamReader> reader, v1::Inference::Stub& stub)
      : reader_(std::move(reader)), stub_(stub) {}
  void Start() override { StreamReader::Start(reader_, stub_); }
  void Cancel() override { reader_->Cancel(); }

 private:
  const std::shared_ptr<StreamReader> reader_;
  v1::Inference::Stub& stub_;
};

class GrpcBackend final : public Backend {
 public:
  explicit GrpcBackend(GrpcBackendOptions options) : options_(std::move(options)) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto credentials = ClientCredentials(options_.tls);
    usable_ = credentials.status();
    stub_ = v1::Inference::NewStub(grpc::CreateCustomChannel(
        options_.server, credentials.ok() ? *credentials : grpc::InsecureChannelCredentials(),
        arguments));
  }

  std::string_view name() const override { return "tandem"; }

  absl::StatusOr<ServerInfo> Connect(Duration patience) override {
    RETURN_IF_ERROR(usable_);
    const TimePoint deadline = std::chrono::steady_clock::now() + patience;
    v1::GetStatusResponse status;
    absl::Status asked = AskStatus(status);
    while (!asked.ok() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kRetryInterval);
      asked = AskStatus(status);
    }
    RETURN_IF_ERROR(asked);
    RETURN_IF_ERROR(FetchPool());
    return ServerInfo{.model = status.model(), .max_context_tokens = status.max_context_tokens()};
  }

  std::unique_ptr<Call> Prepare(const ScheduledRequest& request, const std::string& id,
                                CallObserver& observer) override {
    v1::GenerateRequest message;
    const std::vector<int32_t> tokens = MakePromptTokens(request, pool_);
    message.mutable_token_ids()->mutable_ids()->Add(tokens.begin(), tokens.end());
    message.set_max_tokens(request.output_tokens);
    message.set_ignore_eos(options_.request.ignore_eos);
    message.set_request_id(id);
    message.set_route(RouteNamed(options_.route));
    const Objectives& objectives = options_.objectives;
    if (objectives.ttft) message.set_ttft_slo_ms(*objectives.ttft);
    if (objectives.tpot) message.set_tpot_slo_ms(*objectives.tpot);
    message.mutable_sampling()->set_temperature(static_cast<float>(options_.request.temperature));
    auto reader =
        std::make_shared<StreamReader>(std::move(message), options_.request.timeout, observer);
    return std::make_unique<GrpcCall>(std::move(reader), *stub_);
  }

 private:
  static void Prepare(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + kQuestionTimeout);
    AddApiKey(context);
  }

  absl::Status AskStatus(v1::GetStatusResponse& status) {
    grpc::ClientContext context;
    Prepare(context);
    const absl::Status asked = ToAbsl(stub_->GetStatus(&context, {}, &status));
    if (!asked.ok()) {
      return Annotate(asked, "no router answers at " + options_.server +
                                 ": start one with tandem up, or give another --server");
    }
    if (status.ready()) return absl::OkStatus();
    return Unavailable(
        "the router at {} is not ready, because it has no worker that could serve a request: wait "
        "with --ready-check-timeout-sec, or look at tandem status",
        options_.server);
  }

  absl::Status FetchPool() {
    grpc::ClientContext context;
    Prepare(context);
    v1::TokenizeRequest request;
    request.set_text(PoolText());
    request.set_omit_template(true);
    v1::TokenizeResponse response;
    const absl::Status asked = ToAbsl(stub_->Tokenize(&context, request, &response));
    if (absl::IsFailedPrecondition(asked)) {  // a model without tokenizer
      pool_.resize(kIdsOfEveryVocabulary);
      std::iota(pool_.begin(), pool_.end(), 0);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(asked);
    pool_ = MakeTokenPool({response.token_ids().begin(), response.token_ids().end()});
    constexpr size_t kLeast = 16;
    if (pool_.size() >= kLeast) return absl::OkStatus();
    return FailedPrecondition(
        "the tokenizer of {} has only {} tokens for two-letter words: prompts could not differ",
        options_.server, pool_.size());
  }

  const GrpcBackendOptions options_;
  absl::Status usable_;  // why the files of TLS cannot be used
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::vector<int32_t> pool_;
};

}  // namespace

std::unique_ptr<Backend> NewGrpcBackend(GrpcBackendOptions options) {
  return std::make_unique<GrpcBackend>(std::move(options));
}

}  // namespace tandem::loadgen
