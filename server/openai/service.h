#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/http/http_server.h"
#include "server/openai/answer_format.h"
#include "server/openai/service_parts.h"
#include "server/openai/token_texts.h"

namespace tandem::openai {

// What clients of OpenAI's API call (docs/openai.md): parses, hands over to the router, and writes
// its answers as JSON. It must outlive the HTTP server that has its routes, and all of its
// exchanges.
class Service {
 public:
  explicit Service(ServiceParts parts);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  std::vector<HttpRoute> Routes() const;
  const ServiceParts& parts() const { return parts_; }
  const std::string& model() const { return parts_.model.name; }

 private:
  const ServiceParts parts_;
  const TokenTexts texts_;
  const std::unique_ptr<const AnswerFormat> completions_;
  const std::unique_ptr<const AnswerFormat> chats_;
};

}  // namespace tandem::openai
