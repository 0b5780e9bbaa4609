#include "model/tokenizer/byte_steps.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "model/tokenizer/bpe.h"

namespace tandem {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

class ByteLevelStep : public DecodeStep {
 public:
  void Push(std::string_view token, std::vector<std::string>& out) override {
    const std::optional<std::string> bytes = ByteLevelBytes(token);
    held_.append(bytes.has_value() ? std::string_view(*bytes) : token);
    const size_t held = IncompleteUtf8Suffix(held_);
    const std::string_view complete = std::string_view(held_).substr(0, held_.size() - held);
    if (complete.empty()) return;
    out.push_back(ReplaceInvalidUtf8(complete));
    held_.erase(0, complete.size());
  }
  void Finish(std::vector<std::string>& out) override {
    if (!held_.empty()) out.push_back(ReplaceInvalidUtf8(held_));
    held_.clear();
  }
  std::unique_ptr<DecodeStep> Fresh() const override { return std::make_unique<ByteLevelStep>(); }

 private:
  std::string held_;
};

class ByteFallbackStep : public DecodeStep {
 public:
  void Push(std::string_view token, std::vector<std::string>& out) override {
    if (const std::optional<char> byte = ByteOf(token)) {
      run_.push_back(*byte);
      return;
    }
    Finish(out);
    out.emplace_back(token);
  }
  void Finish(std::vector<std::string>& out) override {
    if (run_.empty()) return;
    if (ValidUtf8Prefix(run_) == run_.size()) {
      out.push_back(run_);
    } else {
      out.insert(out.end(), run_.size(), std::string(kReplacementCharacter));
    }
    run_.clear();
  }
  std::unique_ptr<DecodeStep> Fresh() const override {
    return std::make_unique<ByteFallbackStep>();
  }

 private:
  static std::optional<char> ByteOf(std::string_view token) {
    if (token.size() != 6 || token.substr(0, 3) != "<0x" || token.back() != '>') return {};
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      const auto digit = std::string_view("0123456789abcdef")
                             .find(static_cast<char>(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c));
      if (digit == std::string_view::npos) return {};
      value = value * 16 + static_cast<int>(digit);
    }
    return static_cast<char>(value);
  }

  std::string run_;
};

}  // namespace

std::unique_ptr<DecodeStep> MakeByteLevelStep() { return std::make_unique<ByteLevelStep>(); }

std::unique_ptr<DecodeStep> MakeByteFallbackStep() { return std::make_unique<ByteFallbackStep>(); }

}  // namespace tandem
