#include "model/answer/answer_reader.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/hash.h"
#include "fmt/format.h"
#include "model/answer/call_parser.h"
#include "model/answer/mark.h"

namespace tandem {
namespace {

using Kind = AnswerEvent::Kind;
using Calls = ReaderOptions::Calls;

// The most bytes that may wait outside of calls: white space and the beginning of a mark.
constexpr size_t kMaxOutside = 4096;

// The id of call number `call`. It differs from call to call, because clients send ids back with
// the results.
std::string CallId(const std::string& seed, int32_t call, bool is_short) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  const std::string key = fmt::format("{}/{}", seed, call);
  std::string id = is_short ? "" : "call_";
  const size_t wanted = is_short ? 9 : id.size() + 24;
  for (uint64_t part = 0; id.size() < wanted; ++part) {
    uint64_t bits = Hash64(std::as_bytes(std::span(key)), part);
    for (int i = 0; i < 12 && id.size() < wanted; ++i, bits /= kDigits.size()) {
      id += kDigits[bits % kDigits.size()];
    }
  }
  return id;
}

}  // namespace

// The state of a reader. text_ is what has been fed and is in no event yet. Decisions look at a
// bounded part of it from its beginning, which makes them independent of how much has been fed at
// once.
class AnswerReader::State {
 public:
  State(std::shared_ptr<const AnswerMarkup> markup, ReaderOptions options)
      : markup_(std::move(markup)), options_(std::move(options)) {
    if (markup_ == nullptr) markup_ = std::make_shared<const AnswerMarkup>();
    prompt_opened_ = options_.reasoning_open && markup_->reasoning.has_value();
    skip_space_ = prompt_opened_;
  }

  std::vector<AnswerEvent> Read(std::string_view text, bool last) {
    text_ += text;
    last_ = last;
    while (Step()) {
    }
    return std::exchange(events_, {});
  }

  bool in_reasoning() const { return mode_ == Mode::kReasoning || prompt_opened_; }
  int32_t num_calls() const { return num_calls_; }

 private:
  // What text_ begins with.
  enum class Mode {
    kStart,      // the answer's start: maybe reasoning, or a call without marks
    kReasoning,  // the text of the reasoning, without its opening mark
    kContent,
    kOpen,     // a call: text_[0, at_) is white space, and marks come at at_
    kCall,     // text_[0, at_) has been read and would be content if the rest is no call
    kClose,    // expects the mark that closes a call
    kBetween,  // another call, or the end of the section
  };

  // Handles the beginning of text_ by the mode. False when nothing can be done without more text.
  bool Step();
  bool ReadStart();
  bool ReadReasoning();
  bool ReadContent();
  bool ReadOpen();
  bool ReadCall();
  bool ReadClose();
  bool ReadBetween();
  Match TakeMark(std::string_view mark);
  void BeginCall();
  bool FailCall(size_t end);
  bool EmitUntil(Kind kind, size_t size);
  void Emit(Kind kind, std::string_view text);
  void EmitFront(Kind kind, size_t size);

  const CallMarkup* calls() const {
    return options_.calls == Calls::kNone || !markup_->calls ? nullptr : &*markup_->calls;
  }
  // The mark that a call in the content begins with; empty where only the answer itself can be one.
  std::string_view EntryMark() const {
    return calls()->section_open.empty() ? calls()->call_open : calls()->section_open;
  }
  std::string_view Outside(size_t from) const {
    return std::string_view(text_).substr(0, from + kMaxOutside);
  }
  // As MatchMark at text_[at], but kNo in place of kMore where more text cannot change the result.
  Match MatchHere(size_t& at, std::string_view mark) const {
    const std::string_view view = Outside(at);
    const size_t begin = at;
    const Match match = MatchMark(view, at, mark);
    const bool final = last_ || view.size() == begin + kMaxOutside;
    return match == Match::kMore && final ? Match::kNo : match;
  }

  std::shared_ptr<const AnswerMarkup> markup_;
  const ReaderOptions options_;
  std::vector<AnswerEvent> events_;
  std::string text_;
  size_t at_ = 0;
  Mode mode_ = Mode::kStart;
  bool last_ = false;
  bool skip_space_ = false;     // white space before the next part is dropped
  bool prompt_opened_ = false;  // the prompt began reasoning that has no text yet
  bool in_section_ = false;
  bool begun_ = false;  // events of the current call have been emitted
  std::optional<CallParser> call_;
  int32_t num_calls_ = 0;
};

bool AnswerReader::State::Step() {
  if (skip_space_) {
    text_.erase(0, SkipSpace(text_, 0));
    if (text_.empty()) return false;
    skip_space_ = false;
  }
  switch (mode_) {
    case Mode::kStart:
      return ReadStart();
    case Mode::kReasoning:
      return ReadReasoning();
    case Mode::kContent:
      return ReadContent();
    case Mode::kOpen:
      return ReadOpen();
    case Mode::kCall:
      return ReadCall();
    case Mode::kClose:
      return ReadClose();
    case Mode::kBetween:
      return ReadBetween();
  }
  return false;
}

bool AnswerReader::State::ReadStart() {
  if (text_.empty()) return false;
  if (markup_->reasoning && !markup_->reasoning->open.empty()) {
    size_t at = 0;
    const Match match = MatchHere(at, markup_->reasoning->open);
    if (match == Match::kMore) return false;
    if (match == Match::kYes) {
      text_.erase(0, at);
      skip_space_ = true;
      prompt_opened_ = false;
      mode_ = Mode::kReasoning;
      return true;
    }
  }
  if (std::exchange(prompt_opened_, false)) {
    mode_ = Mode::kReasoning;
    return true;
  }
  if (calls() != nullptr && EntryMark().empty()) {
    size_t at = 0;
    const Match match = MatchHere(at, "{");
    if (match == Match::kMore) return false;
    if (match == Match::kYes) {
      at_ = 0;
      mode_ = Mode::kOpen;
      return true;
    }
  }
  mode_ = Mode::kContent;
  return true;
}

bool AnswerReader::State::ReadReasoning() {
  const std::string_view view = Outside(0);
  const FoundMark close = FindMark(view, markup_->reasoning->close);
  if (close.match == Match::kYes) {
    const size_t size = TrimSpace(view, close.begin);
    Emit(Kind::kReasoning, view.substr(0, size));
    text_.erase(0, close.end);
    skip_space_ = true;
    mode_ = Mode::kStart;
    return true;
  }
  return EmitUntil(Kind::kReasoning, TrimSpace(view, close.begin));
}

bool AnswerReader::State::ReadContent() {
  const std::string_view view = Outside(0);
  if (calls() == nullptr || EntryMark().empty()) return EmitUntil(Kind::kContent, view.size());
  const FoundMark entry = FindMark(view, EntryMark());
  const size_t size = TrimSpace(view, entry.begin);
  if (entry.match != Match::kYes) return EmitUntil(Kind::kContent, size);
  EmitFront(Kind::kContent, size);
  at_ = 0;
  mode_ = Mode::kOpen;
  return true;
}

bool AnswerReader::State::EmitUntil(Kind kind, size_t size) {
  const size_t seen = Outside(0).size();
  if (size == 0 && (last_ || seen == kMaxOutside)) size = seen;
  EmitFront(kind, size);
  return size > 0;
}

bool AnswerReader::State::ReadOpen() {
  size_t at = at_;
  Match match = in_section_ ? Match::kYes : MatchHere(at, calls()->section_open);
  if (match == Match::kYes) match = MatchHere(at, calls()->call_open);
  if (match == Match::kMore) return false;
  if (match == Match::kNo) return FailCall(std::max<size_t>(at, 1));
  at_ = at;
  in_section_ = true;
  call_.emplace(*calls(), options_.string_parameters);
  mode_ = Mode::kCall;
  return true;
}

bool AnswerReader::State::ReadCall() {
  const std::string_view view = std::string_view(text_).substr(0, kMaxHeldBytes);
  const CallParser::Result result = call_->Read(view, at_);
  const bool done = result == CallParser::Result::kDone;
  size_t taken = 0;
  if (done || (options_.calls == Calls::kStreamed && call_->certain())) {
    if (!begun_) BeginCall();
    Emit(Kind::kArguments, call_->TakeArguments());
    taken = at_;
    text_.erase(0, std::exchange(at_, 0));
  }
  if (done) {
    mode_ = Mode::kClose;
    return true;
  }
  if (result == CallParser::Result::kFailed) return FailCall(at_);
  if (last_) return FailCall(text_.size());
  if (view.size() < kMaxHeldBytes) return false;
  // The view is full. If something was taken from it, reading goes on with more text; otherwise the
  // call is too long.
  return taken > 0 || FailCall(kMaxHeldBytes);
}

void AnswerReader::State::BeginCall() {
  begun_ = true;
  AnswerEvent& event = events_.emplace_back(AnswerEvent{.kind = Kind::kCallBegin});
  event.call = num_calls_++;
  event.name = call_->name();
  // Some models number their calls themselves, and their templates print the id in place of the
  // name.
  const std::string_view open = calls()->call_open;
  constexpr std::string_view kNamespace = "functions.";
  event.id = open.ends_with(kNamespace) && !call_->number().empty()
                 ? fmt::format("{}{}:{}", kNamespace, call_->name(), call_->number())
                 : CallId(options_.id_seed, event.call, markup_->short_call_ids);
}

// Ends a call that is malformed: text_[0, end) becomes content.
bool AnswerReader::State::FailCall(size_t end) {
  if (std::exchange(begun_, false)) Emit(Kind::kCallEnd, "");
  EmitFront(Kind::kContent, end);
  at_ = 0;
  call_.reset();
  in_section_ = false;
  mode_ = Mode::kContent;
  return true;
}

bool AnswerReader::State::ReadClose() {
  if (TakeMark(calls()->call_close) == Match::kMore) return false;
  begun_ = false;
  Emit(Kind::kCallEnd, "");
  mode_ = Mode::kBetween;
  return true;
}

// Drops `mark` from the front of text_. At the end of the answer the beginning of the mark is
// enough.
Match AnswerReader::State::TakeMark(std::string_view mark) {
  size_t at = 0;
  const Match match = MatchMark(Outside(0), at, mark);
  if (last_ && match == Match::kMore) {
    text_.clear();
    return Match::kYes;
  }
  if (match == Match::kMore && Outside(0).size() == kMaxOutside) return Match::kNo;
  if (match == Match::kYes) text_.erase(0, at);
  return match;
}

bool AnswerReader::State::ReadBetween() {
  Match end = Match::kNo;
  if (!calls()->section_close.empty()) end = TakeMark(calls()->section_close);
  if (end == Match::kMore) return false;
  if (end == Match::kNo) {
    size_t at = 0;
    const Match separator = MatchHere(at, calls()->separator);
    if (separator == Match::kMore) return false;
    if (separator == Match::kNo) at = 0;
    size_t next = at;
    const Match open =
        MatchHere(next, calls()->call_open.empty() ? std::string_view("{") : calls()->call_open);
    if (open == Match::kMore) return false;
    if (open == Match::kYes) {
      at_ = at;
      mode_ = Mode::kOpen;
      return true;
    }
  }
  in_section_ = false;
  skip_space_ = true;
  mode_ = Mode::kStart;
  return true;
}

// Adds `text` to the last event where that is of the same kind, and else adds an event.
void AnswerReader::State::Emit(Kind kind, std::string_view text) {
  if (kind != Kind::kCallEnd && text.empty()) return;
  if (kind == Kind::kCallEnd || events_.empty() || events_.back().kind != kind) {
    events_.push_back({.kind = kind});
    const bool of_call = kind == Kind::kArguments || kind == Kind::kCallEnd;
    if (of_call) events_.back().call = num_calls_ - 1;
  }
  events_.back().text += text;
}

// Moves text_[0, size) into an event.
void AnswerReader::State::EmitFront(Kind kind, size_t size) {
  Emit(kind, std::string_view(text_).substr(0, size));
  text_.erase(0, size);
}

AnswerReader::AnswerReader(std::shared_ptr<const AnswerMarkup> markup, ReaderOptions options)
    : state_(std::make_unique<State>(std::move(markup), std::move(options))) {}

AnswerReader::~AnswerReader() = default;
AnswerReader::AnswerReader(AnswerReader&&) noexcept = default;
AnswerReader& AnswerReader::operator=(AnswerReader&&) noexcept = default;

std::vector<AnswerEvent> AnswerReader::Feed(std::string_view text) {
  return state_->Read(text, /*last=*/false);
}

std::vector<AnswerEvent> AnswerReader::Finish() { return state_->Read("", /*last=*/true); }

bool AnswerReader::in_reasoning() const { return state_->in_reasoning(); }

int32_t AnswerReader::num_calls() const { return state_->num_calls(); }

}  // namespace tandem
