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
  // The answer to a request that failed before a stream of its answer began.
  HttpResponse (*error)(const absl::Status& status, const std::string& request_id);
  // A header that has the request's id besides x-request-id; empty for none.
  std::string_view id_header = {};
  // What a stream sends while there is nothing to send.
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
  // What a stream begins with, which may be nothing. Called once, when the stream begins, which may be
  // after calls of Add; its client gets it before all else.
  virtual std::string Begin() = 0;
  // Takes an event of that prompt. Returns what a stream sends now, which may be nothing.
  virtual std::string Add(size_t prompt, const v1::GenerateResponse& event) = 0;
  // The end of a stream, or the whole answer. Every prompt must have its summary.
  virtual std::string Finish() = 0;
  // The end of a stream that an error ends after its status was sent.
  virtual std::string StreamError(const absl::Status& status) = 0;

  // Where the first choice that ended was computed; nothing before.
  virtual const std::optional<v1::ChoiceFinish>& first_finish() const = 0;
};

}  // namespace tandem::openai
