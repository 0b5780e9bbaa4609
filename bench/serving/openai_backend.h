#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/serving/backend.h"
#include "bench/serving/openai_body.h"
#include "security/tls_files.h"

namespace tandem::loadgen {

struct OpenAiBackendOptions {
  OpenAiApi api = OpenAiApi::kCompletions;
  std::string base_url = "http://127.0.0.1:8000";
  std::string endpoint;              // empty: /v1/completions or /v1/chat/completions
  std::string model;                 // empty: the first that the server names
  std::string api_key;               // empty: none is sent
  std::vector<std::string> headers;  // "Name: value", for each request
  std::string extra_json;            // as in OpenAiBody
  RequestOptions request;
  TlsFiles tls;  // of HTTPS, as in HttpRequest
};

// Any server that speaks OpenAI's HTTP API with streaming. Where it also has /tokenize, completions
// are asked for with token ids, so that prompts have exactly the wanted length.
std::unique_ptr<Backend> NewOpenAiBackend(OpenAiBackendOptions options);

}  // namespace tandem::loadgen
