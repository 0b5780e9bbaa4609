#include "model/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/status.h"
#include "model/tokenizer/regex_syntax.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

template <typename T, void (*Free)(T*)>
struct Freer {
  void operator()(T* object) const { Free(object); }
};
using Code = std::unique_ptr<pcre2_code, Freer<pcre2_code, pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data, pcre2_match_data_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context, pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context,
                                       Freer<pcre2_compile_context, pcre2_compile_context_free>>;

// Bounds the backtracking steps of one match. Backtracking over a long run of spaces takes one step
// per space; a pattern with exponential backtracking takes far more.
constexpr uint32_t kMinMatchLimit = 10'000;
constexpr uint32_t kMatchStepsPerByte = 16;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof(text)) < 0) return fmt::format("error {}", code);
  return reinterpret_cast<const char*>(text);
}

uint32_t MatchLimit(size_t text_bytes) {
  constexpr size_t kMaxBytes = UINT32_MAX / kMatchStepsPerByte - kMinMatchLimit;
  return kMinMatchLimit +
         kMatchStepsPerByte * static_cast<uint32_t>(std::min(text_bytes, kMaxBytes));
}

}  // namespace

struct Regex::Program {
  Code code;
};

Regex::Regex(std::unique_ptr<Program> program) : program_(std::move(program)) {}
Regex::~Regex() = default;

absl::StatusOr<std::unique_ptr<const Regex>> Regex::Compile(std::string_view pattern) {
  constexpr size_t kMaxPatternBytes = 16 * 1024;
  if (pattern.size() > kMaxPatternBytes) {
    return Unimplemented("a pattern of {} bytes: at most {} are supported", pattern.size(),
                         kMaxPatternBytes);
  }
  ASSIGN_OR_RETURN(const std::string translated, OnigurumaToPcre2(pattern));
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &error_at,
                          context.get()));
  if (code == nullptr) {
    return Unimplemented("pattern {}: {}", pattern, ErrorText(error));
  }
  // If the JIT is not available, for example because the kernel forbids executable memory, matches
  // are the same but slower.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return std::unique_ptr<const Regex>(
      new Regex(std::make_unique<Program>(Program{std::move(code)})));
}

absl::Status Regex::FindAll(std::string_view text, std::vector<MatchPart>& parts) const {
  const MatchData match(pcre2_match_data_create(1, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), MatchLimit(text.size()));
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());

  size_t covered = 0;
  size_t from = 0;
  std::optional<size_t> last_match_end;
  while (from <= text.size()) {
    // The text is known to be well-formed. Without PCRE2_NO_UTF_CHECK, PCRE2 validates all of it in
    // each match.
    constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK;
    int count = pcre2_match(program_->code.get(), subject, text.size(), from, kOptions, match.get(),
                            context.get());
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = pcre2_match(program_->code.get(), subject, text.size(), from, kOptions | PCRE2_NO_JIT,
                          match.get(), context.get());
    }
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return ResourceExhausted("the tokenizer's pattern gave up at byte {} of {}: {}", from,
                               text.size(), ErrorText(count));
    }
    const size_t begin = found[0];
    const size_t end = found[1];
    // An empty match directly after another match does not count; the search continues at the next
    // character.
    if (begin == end && last_match_end == end) {
      if (end == text.size()) break;
      from = end + FirstCharacter(text.substr(end)).length;
      continue;
    }
    if (covered < begin) parts.push_back({covered, begin, false});
    parts.push_back({begin, end, true});
    covered = from = end;
    last_match_end = end;
  }
  if (covered < text.size()) parts.push_back({covered, text.size(), false});
  return absl::OkStatus();
}

}  // namespace tandem
