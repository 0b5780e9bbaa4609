#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "tandem/v1/inference.grpc.pb.h"

namespace tandem {

// A router that has no workers and whose answers a test writes down. It is reached by gRPC, at a
// free port of this host. Words of two letters have one token each.
class ScriptedInference final : public v1::Inference::Service {
 public:
  using Writer = grpc::ServerWriter<v1::GenerateResponse>;
  // On a thread of gRPC, for each call of Generate.
  using Script = std::function<grpc::Status(const v1::GenerateRequest&, Writer&)>;

  explicit ScriptedInference(Script script) : script_(std::move(script)) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~ScriptedInference() override { server_->Shutdown(); }

  const std::string& address() const { return address_; }
  void set_ready(bool ready) { ready_ = ready; }

  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        Writer* writer) override {
    return script_(*request, *writer);
  }
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* status) override {
    status->set_ready(ready_);
    status->set_model("script");
    status->set_max_context_tokens(kMaxContextTokens);
    return grpc::Status::OK;
  }
  grpc::Status Tokenize(grpc::ServerContext*, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    for (size_t at = 0; at + 1 < request->text().size(); at += 3) {
      response->add_token_ids(request->text()[at + 1] * 100 + request->text()[at + 2]);
    }
    return grpc::Status::OK;
  }

  // The parts of an answer, for scripts.
  static void WriteTokens(Writer& writer, int32_t tokens) {
    v1::GenerateResponse event;
    for (int32_t i = 0; i < tokens; ++i) event.mutable_chunk()->add_token_ids(i);
    writer.Write(event);
  }
  static void WriteFinish(Writer& writer, v1::FinishReason reason, const v1::Stages& stages = {}) {
    v1::GenerateResponse event;
    event.mutable_finish()->set_reason(reason);
    event.mutable_finish()->set_route(v1::ROUTE_UNIFIED);
    *event.mutable_finish()->mutable_stages() = stages;
    writer.Write(event);
  }
  static void WriteSummary(Writer& writer, int32_t prompt_tokens, int32_t output_tokens) {
    v1::GenerateResponse event;
    event.mutable_summary()->mutable_usage()->set_prompt_tokens(prompt_tokens);
    event.mutable_summary()->mutable_usage()->set_completion_tokens(output_tokens);
    writer.Write(event);
  }

  static constexpr int32_t kMaxContextTokens = 1000;

 private:
  const Script script_;
  bool ready_ = true;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tandem
