#include "server/terminal/chat_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"
#include "fmt/format.h"
#include "server/terminal/chat_file.h"

namespace tandem::terminal {
namespace {

constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kMorePrompt = ". ";

std::string HelpText() {
  std::string text;
  for (const CommandInfo& command : Commands()) {
    text += fmt::format("{:<10} {:<30} {}\n", command.name, command.argument, command.help);
  }
  return text +
         "A line that ends in a backslash goes on in the next one. Ctrl-C stops an answer.\n"
         "A command may be abbreviated; a message that begins with a slash begins with two.";
}

// Servers say in different words that a prompt is too long, but all of them name the context.
bool IsAboutContext(const absl::Status& status) {
  return absl::IsInvalidArgument(status) &&
         std::string_view(status.message().data(), status.message().size()).find("context") !=
             std::string_view::npos;
}

double MillisecondsSince(TimePoint start) {
  return ToMilliseconds(std::chrono::steady_clock::now() - start);
}

}  // namespace

ChatSession::ChatSession(ChatOptions options, ChatParts parts)
    : options_(std::move(options)), parts_(parts), chat_(std::move(options_.chat)) {}

absl::Status ChatSession::Run() {
  const absl::StatusOr<ServedModel> model = parts_.connection.FindModel(options_.model);
  if (absl::IsUnavailable(model.status())) {
    return Annotate(model.status(),
                    "no server answers: start one by `tandem up --model DIR`, or give its address "
                    "with --url");
  }
  if (absl::IsFailedPrecondition(model.status())) {
    return Annotate(model.status(), "--tls-ca names who may have signed the server's certificate");
  }
  RETURN_IF_ERROR(model.status());
  model_ = *model;
  parts_.screen.Note(fmt::format(
      "{} at {}{}. /help lists the commands, Ctrl-D leaves.", model_.name, parts_.connection.url(),
      model_.max_context_tokens > 0
          ? fmt::format(", a context of {} tokens", model_.max_context_tokens)
          : ""));
  while (true) {
    const InputLine line = parts_.reader.Read(joiner_.is_open() ? kMorePrompt : kPrompt);
    Next next = Next::kGoOn;
    switch (line.kind) {
      case InputLine::Kind::kEnd: {
        const std::string rest = joiner_.Take();
        if (!rest.empty()) Do(rest);
        return absl::OkStatus();
      }
      case InputLine::Kind::kInterrupted:
        next = OnInterrupt(line);
        break;
      case InputLine::Kind::kText: {
        leave_at_interrupt_ = false;
        if (!line.text.empty()) parts_.reader.Remember(line.text);
        if (const std::optional<std::string> text = joiner_.Add(line.text)) next = Do(*text);
        break;
      }
    }
    if (next == Next::kLeave) return absl::OkStatus();
  }
}

// The first Ctrl-C throws away what was typed, the second one without any text between leaves.
ChatSession::Next ChatSession::OnInterrupt(const InputLine& line) {
  const bool had_text = line.had_text || joiner_.is_open();
  joiner_.Take();
  if (had_text) return Next::kGoOn;
  if (std::exchange(leave_at_interrupt_, true)) return Next::kLeave;
  parts_.screen.Note("Ctrl-C again, or Ctrl-D, leaves.");
  return Next::kGoOn;
}

ChatSession::Next ChatSession::Do(const std::string& text) {
  absl::StatusOr<UserInput> input = ParseInput(text);
  if (!input.ok()) {
    Fail(input.status());
    return Next::kGoOn;
  }
  switch (input->verb) {
    case Verb::kSay:
      if (!input->text.empty()) Say(std::move(input->text));
      break;
    case Verb::kHelp:
      parts_.screen.Print(HelpText());
      break;
    case Verb::kRoute:
      SetRoute(input->text);
      break;
    case Verb::kExplain:
      Explain();
      break;
    case Verb::kSave:
      Save(ExpandHome(input->text));
      break;
    case Verb::kLoad:
      Load(ExpandHome(input->text));
      break;
    case Verb::kSystem:
      SetSystem(input->text);
      break;
    case Verb::kTrim:
      Trim(input->text);
      break;
    case Verb::kClear:
      chat_.Clear();
      taken_back_.clear();
      parts_.screen.Note("A new chat.");
      break;
    case Verb::kRetry:
      Retry();
      break;
    case Verb::kStats:
      parts_.screen.Print(totals_.Text());
      break;
    case Verb::kQuit:
      return Next::kLeave;
  }
  return Next::kGoOn;
}

void ChatSession::Fail(const absl::Status& status) {
  any_failed_ = true;
  parts_.screen.Error(status);
}

void ChatSession::Say(std::string text) {
  taken_back_.clear();
  const Conversation before = chat_;
  chat_.Ask(text);
  if (AskForAnswer()) return;
  chat_ = before;
  taken_back_ = std::move(text);
  parts_.screen.Note("The question was taken back: /retry asks it again.");
}

void ChatSession::Retry() {
  if (!taken_back_.empty()) return Say(std::exchange(taken_back_, {}));
  if (chat_.num_turns() == 0) return Fail(InvalidArgument("there is no question to ask again"));
  const Conversation before = chat_;
  chat_.Ask(chat_.TakeBack());
  if (AskForAnswer()) return;
  chat_ = before;
  parts_.screen.Note("The chat is as it was before.");
}

void ChatSession::SetRoute(const std::string& text) {
  if (text.empty()) return parts_.screen.Print(options_.route);
  if (text != "auto" && text != "unified" && text != "disaggregated") {
    return Fail(InvalidArgument("/route {}: give auto, unified or disaggregated", text));
  }
  options_.route = text;
}

void ChatSession::SetSystem(const std::string& text) {
  if (text.empty()) {
    return parts_.screen.Print(chat_.system().empty() ? "(no system text)" : chat_.system());
  }
  chat_.set_system(text == "-" ? "" : text);
}

void ChatSession::Trim(const std::string& text) {
  int turns = 1;
  if (!text.empty() && (!absl::SimpleAtoi(text, &turns) || turns < 1)) {
    return Fail(InvalidArgument("/trim {}: give the number of questions to forget", text));
  }
  int dropped = 0;
  while (dropped < turns && chat_.DropOldest()) ++dropped;
  // The last turn is forgotten as well, unless its question has no answer yet and waits for /retry.
  if (dropped < turns && chat_.num_turns() == 1 && !chat_.is_unanswered()) {
    chat_.Clear();
    ++dropped;
  }
  parts_.screen.Note(
      fmt::format("{} questions forgotten, {} are left.", dropped, chat_.num_turns()));
}

void ChatSession::Explain() {
  if (last_request_.empty()) return Fail(InvalidArgument("nothing was asked yet"));
  const absl::StatusOr<std::string> text =
      parts_.connection.Explain(last_request_, parts_.screen.columns());
  if (!text.ok()) return Fail(text.status());
  parts_.screen.Print(std::string_view(*text).substr(0, text->find_last_not_of('\n') + 1));
}

void ChatSession::Save(const std::string& path) {
  if (const absl::Status status = SaveChat(chat_, path); !status.ok()) return Fail(status);
  parts_.screen.Note(fmt::format("{} questions are in {}.", chat_.num_turns(), path));
}

void ChatSession::Load(const std::string& path) {
  absl::StatusOr<Conversation> chat = LoadChat(path);
  if (!chat.ok()) return Fail(chat.status());
  chat_ = *std::move(chat);
  taken_back_ = chat_.is_unanswered() ? chat_.TakeBack() : "";
  parts_.screen.Note(fmt::format("{} questions from {}.{}", chat_.num_turns(), path,
                                 taken_back_.empty() ? ""
                                                     : " /retry asks the last one, which has "
                                                       "no answer."));
}

std::string ChatSession::Body() const {
  nlohmann::ordered_json body = options_.fields;
  body["model"] = model_.name;
  body["messages"] = chat_.Messages();
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  body["return_timing"] = true;
  body["session_id"] = options_.session_id;
  if (options_.route != "auto") body["route"] = options_.route;
  if (options_.max_tokens) body["max_tokens"] = *options_.max_tokens;
  return JsonText(body);
}

bool ChatSession::AskForAnswer() {
  if (options_.trim) TrimToFit();
  last_request_ = fmt::format("{}-{}", options_.request_prefix, ++requests_);
  ChatAnswer answer;
  SeenTimes seen;
  const TimePoint start = std::chrono::steady_clock::now();
  const auto on_event = [&](std::string_view data) {
    for (const AnswerPiece& piece : answer.Add(data)) {
      seen.last_ms = MillisecondsSince(start);
      if (seen.first_ms == 0) seen.first_ms = seen.last_ms;
      parts_.screen.Piece(piece);
    }
  };
  const auto must_stop = [this] {
    return parts_.signals != nullptr && parts_.signals->TakeInterrupt();
  };
  absl::Status status = parts_.connection.Ask(Body(), last_request_, on_event, must_stop);
  parts_.screen.EndAnswer();
  return TakeAnswer(answer, std::move(status), seen);
}

bool ChatSession::TakeAnswer(ChatAnswer& answer, absl::Status status, const SeenTimes& seen) {
  const absl::Status end = answer.End(std::move(status));
  if (absl::IsCancelled(end)) {
    totals_.AddStopped();
    leave_at_interrupt_ = true;
    if (!answer.has_text()) return false;
    parts_.screen.Note("[stopped; the chat keeps what came]");
    chat_.Answer(answer.Message());
    return true;
  }
  if (!end.ok()) {
    FailAnswer(end);
    return false;
  }
  chat_.Answer(answer.Message());
  const AnswerFigures figures = FiguresOf(answer, seen);
  totals_.Add(figures);
  parts_.screen.Note(FiguresLine(figures, model_.max_context_tokens));
  if (answer.end().finish_reason == "length") {
    parts_.screen.Note(options_.max_tokens
                           ? "The answer was cut at --max-tokens."
                           : "The answer was cut because the context is full: /trim "
                             "forgets the oldest question, /clear all of them.");
  }
  return true;
}

void ChatSession::FailAnswer(const absl::Status& status) {
  totals_.AddFailed();
  if (absl::IsUnavailable(status) && status.message().find("HTTP") != 0) {
    return Fail(Annotate(status, "no server answers"));
  }
  Fail(status);
  if (IsAboutContext(status)) {
    parts_.screen.Note(
        "The chat is too long for the model: /trim forgets the oldest question, /clear all "
        "of them, and --trim does it by itself.");
  }
}

// Forgets the oldest turns until an answer fits the model's context. If the server cannot count
// tokens, its own judgement of the length decides.
void ChatSession::TrimToFit() {
  constexpr int32_t kShareOfAnswer = 4;  // a quarter of the context
  const int32_t context = model_.max_context_tokens;
  if (context == 0) return;
  const int64_t answer = options_.max_tokens.value_or(context / kShareOfAnswer);
  int forgotten = 0;
  while (true) {
    const absl::StatusOr<int64_t> tokens = parts_.connection.CountTokens(Body());
    const bool fits = tokens.ok() ? *tokens + answer <= context : !IsAboutContext(tokens.status());
    if (fits || !chat_.DropOldest()) break;
    ++forgotten;
  }
  if (forgotten > 0) {
    parts_.screen.Note(
        fmt::format("[{} oldest questions forgotten to fit the context]", forgotten));
  }
}

}  // namespace tandem::terminal
