#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/http/http_exchange.h"
#include "tandem/v1/inference.pb.h"

namespace tandem::openai {

// What the answers of one API have in common besides their bodies.
struct AnswerStyle {
  // Makes the answer to a request that failed before its stream began.
  HttpResponse (*error)(const absl::Status& status, const std::string& request_id);
  // A header that has the request's id besides x-request-id; empty for none.
  std::string_view id_header = {};
  // What a stream sends to keep an idle connection open.
  std::string_view keep_alive = kKeepAliveComment;
};

// Writes the answer to one HTTP request in the form of one API, from what the router sends for its
// prompts. Not thread-safe.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  virtual const AnswerStyle& style() const = 0;
  // Whether the answer is a stream of events; else it is sent when all prompts have ended.
  virtual bool streams() const = 0;
  // The beginning of a stream, which may be empty. Called once, when the stream begins. That may be
  // after calls of Add, whose results the client gets after this one.
  virtual std::string Begin() = 0;
  // Takes an event of the prompt with that index. Returns what a stream sends now, which may be
  // empty.
  virtual std::string Add(size_t prompt, const v1::GenerateResponse& event) = 0;
  // The end of a stream, or the whole answer. To be called when every prompt has its summary.
  virtual std::string Finish() = 0;
  // The last event of a stream that fails after its status was sent.
  virtual std::string StreamError(const absl::Status& status) = 0;

  // How and where the first choice that ended was computed; nothing before a choice has ended.
  virtual const std::optional<v1::ChoiceFinish>& first_finish() const = 0;
};

}  // namespace tandem::openai
