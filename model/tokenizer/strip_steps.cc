#include "model/tokenizer/strip_steps.h"

#include <string_view>
#include <utility>
#include <vector>

namespace tandem {
namespace {

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

class StripTokenStep : public DecodeStep {
 public:
  explicit StripTokenStep(StripLimits limits) : limits_(std::move(limits)) {}

  void Push(std::string_view token, std::vector<std::string>& out) override {
    const size_t length = limits_.content.size();
    for (int32_t i = 0; i < limits_.start && StartsWith(token, limits_.content); ++i) {
      token.remove_prefix(length);
    }
    for (int32_t i = 0; i < limits_.stop && EndsWith(token, limits_.content); ++i) {
      token.remove_suffix(length);
    }
    out.emplace_back(token);
  }
  void Finish(std::vector<std::string>&) override {}
  std::unique_ptr<DecodeStep> Fresh() const override {
    return std::make_unique<StripTokenStep>(limits_);
  }

 private:
  const StripLimits limits_;
};

class StripTextStep : public DecodeStep {
 public:
  explicit StripTextStep(StripLimits limits)
      : limits_(std::move(limits)), left_at_start_(limits_.start) {}

  void Push(std::string_view chunk, std::vector<std::string>& out) override {
    while (left_at_start_ > 0 && StartsWith(chunk, limits_.content)) {
      chunk.remove_prefix(limits_.content.size());
      --left_at_start_;
    }
    if (chunk.empty()) return;
    left_at_start_ = 0;
    std::string text = std::move(held_).append(chunk);
    size_t certain = text.size();
    for (int32_t i = 0; i < limits_.stop; ++i) {
      if (!EndsWith(std::string_view(text).substr(0, certain), limits_.content)) break;
      certain -= limits_.content.size();
    }
    held_ = text.substr(certain);
    text.resize(certain);
    out.push_back(std::move(text));
  }
  void Finish(std::vector<std::string>&) override { held_.clear(); }
  std::unique_ptr<DecodeStep> Fresh() const override {
    return std::make_unique<StripTextStep>(limits_);
  }

 private:
  const StripLimits limits_;
  int32_t left_at_start_;
  std::string held_;
};

}  // namespace

std::unique_ptr<DecodeStep> MakeStripTokenStep(StripLimits limits) {
  return std::make_unique<StripTokenStep>(std::move(limits));
}

std::unique_ptr<DecodeStep> MakeStripTextStep(StripLimits limits) {
  return std::make_unique<StripTextStep>(std::move(limits));
}

}  // namespace tandem
