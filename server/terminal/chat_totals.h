#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/terminal/chat_answer.h"

namespace tandem::terminal {

// The figures that are printed about one answer, and summed up over a session.
struct AnswerFigures {
  std::string route;  // empty: the server reports none
  std::string prefill_worker;
  std::string decode_worker;
  double ttft_ms = 0;
  double itl_ms = 0;           // between tokens, on average; 0: not known
  int32_t prompt_tokens = -1;  // -1, also in the next two fields: the server does not report it
  int32_t cached_tokens = -1;
  int32_t output_tokens = -1;
};

// The times of the first and the last piece as this client saw them, in milliseconds. They are used
// where the server does not report its own times.
struct SeenTimes {
  double first_ms = 0;
  double last_ms = 0;
};
AnswerFigures FiguresOf(const ChatAnswer& answer, const SeenTimes& seen);

// One line: route, workers, times, tokens. `context_tokens`: of the model; 0: not known.
std::string FiguresLine(const AnswerFigures& figures, int32_t context_tokens);

class ChatTotals {
 public:
  void Add(const AnswerFigures& figures);
  void AddStopped() { ++stopped_; }
  void AddFailed() { ++failed_; }
  bool any_failed() const { return failed_ > 0; }
  // The totals of the session as lines for /stats.
  std::string Text() const;

 private:
  int64_t answers_ = 0;
  int64_t stopped_ = 0;
  int64_t failed_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t output_tokens_ = 0;
  double ttft_ms_ = 0;
  double decode_ms_ = 0;
  int64_t decoded_tokens_ = 0;  // the tokens generated in decode_ms_
  std::map<std::string, int64_t> routes_;
};

}  // namespace tandem::terminal
