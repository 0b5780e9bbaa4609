#include "server/terminal/chat_totals.h"

#include <algorithm>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace tandem::terminal {
namespace {

std::string Milliseconds(double ms) {
  return ms < 1e4 ? fmt::format("{:.0f} ms", ms) : fmt::format("{:.1f} s", ms / 1e3);
}

std::string WorkersText(const AnswerFigures& figures) {
  if (figures.decode_worker.empty() || figures.decode_worker == figures.prefill_worker) {
    return figures.prefill_worker;
  }
  if (figures.prefill_worker.empty()) return figures.decode_worker;
  return fmt::format("{} -> {}", figures.prefill_worker, figures.decode_worker);
}

}  // namespace

AnswerFigures FiguresOf(const ChatAnswer& answer, const SeenTimes& seen) {
  const loadgen::CallEnd& end = answer.end();
  AnswerFigures figures{.prompt_tokens = end.prompt_tokens,
                        .cached_tokens = end.cached_tokens,
                        .output_tokens = end.output_tokens};
  if (const auto& timing = answer.timing()) {
    figures.route = timing->route;
    figures.prefill_worker = timing->prefill_worker;
    figures.decode_worker = timing->decode_worker;
    figures.ttft_ms = timing->ttft_ms;
    figures.itl_ms = timing->itl_ms;
    return figures;
  }
  figures.ttft_ms = seen.first_ms;
  if (end.output_tokens > 1) {
    figures.itl_ms = std::max(0.0, seen.last_ms - seen.first_ms) / (end.output_tokens - 1);
  }
  return figures;
}

std::string FiguresLine(const AnswerFigures& figures, int32_t context_tokens) {
  std::vector<std::string> parts;
  if (!figures.route.empty()) {
    parts.push_back(fmt::format("{} on {}", figures.route, WorkersText(figures)));
  }
  parts.push_back("first token after " + Milliseconds(figures.ttft_ms));
  if (figures.itl_ms > 0) parts.push_back(fmt::format("{:.1f} tokens/s", 1e3 / figures.itl_ms));
  if (figures.output_tokens >= 0) parts.push_back(fmt::format("{} tokens", figures.output_tokens));
  if (figures.prompt_tokens >= 0 && figures.cached_tokens >= 0) {
    parts.push_back(
        fmt::format("{} of {} prompt tokens cached", figures.cached_tokens, figures.prompt_tokens));
  }
  if (context_tokens > 0 && figures.prompt_tokens >= 0 && figures.output_tokens >= 0) {
    parts.push_back(fmt::format("context {} of {}", figures.prompt_tokens + figures.output_tokens,
                                context_tokens));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

void ChatTotals::Add(const AnswerFigures& figures) {
  ++answers_;
  prompt_tokens_ += std::max(0, figures.prompt_tokens);
  cached_tokens_ += std::max(0, figures.cached_tokens);
  output_tokens_ += std::max(0, figures.output_tokens);
  ttft_ms_ += figures.ttft_ms;
  if (figures.itl_ms > 0 && figures.output_tokens > 1) {
    decoded_tokens_ += figures.output_tokens - 1;
    decode_ms_ += figures.itl_ms * (figures.output_tokens - 1);
  }
  if (!figures.route.empty()) ++routes_[figures.route];
}

std::string ChatTotals::Text() const {
  std::string text = fmt::format("{} answers, {} stopped, {} failed", answers_, stopped_, failed_);
  if (answers_ == 0) return text;
  text += fmt::format("\n{} prompt tokens, {} of them cached; {} output tokens", prompt_tokens_,
                      cached_tokens_, output_tokens_);
  text += fmt::format("\nfirst token after {} on average",
                      Milliseconds(ttft_ms_ / static_cast<double>(answers_)));
  if (decode_ms_ > 0) {
    text +=
        fmt::format(", {:.1f} tokens/s", 1e3 * static_cast<double>(decoded_tokens_) / decode_ms_);
  }
  for (const auto& [route, count] : routes_) text += fmt::format("\n{} {}", count, route);
  return text;
}

}  // namespace tandem::terminal
