#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/terminal/chat_answer.h"

namespace tandem::terminal {

// What is said of one answer and of all answers of a session.
struct AnswerFigures {
  std::string route;  // empty where the server has none
  std::string prefill_worker;
  std::string decode_worker;
  double ttft_ms = 0;
  double itl_ms = 0;           // between tokens, on average; 0: not known
  int32_t prompt_tokens = -1;  // -1, likewise: the server does not say
  int32_t cached_tokens = -1;
  int32_t output_tokens = -1;
};

// The server's own times, or those seen here, in milliseconds, where it does not say.
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
  // Lines for /stats.
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
  int64_t decoded_tokens_ = 0;  // in decode_ms_
  std::map<std::string, int64_t> routes_;
};

}  // namespace tandem::terminal
