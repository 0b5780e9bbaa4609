// A whole session against a server whose answers the tests write down.

#include "server/terminal/chat_session.h"

#include <signal.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/http_server.h"

namespace tandem::terminal::chat_session_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Exchange = std::shared_ptr<HttpExchange>;

// An answer in one piece.
std::string Answer(const std::string& text, const std::string& reason = "stop") {
  const Json event = {{"choices", {{{"delta", {{"content", text}}}, {"finish_reason", reason}}}},
                      {"usage", {{"prompt_tokens", 8}, {"completion_tokens", 2}}}};
  return "data: " + event.dump() + "\n\ndata: [DONE]\n\n";
}

HttpResponse Stream(std::string events) {
  return {.status = 200, .body = std::move(events), .content_type = "text/event-stream"};
}

class ScriptedServer {
 public:
  ScriptedServer() {
    const auto models = [](const Exchange& exchange) {
      exchange->Respond({.body = R"({"data":[{"id":"m","max_model_len":100}]})"});
    };
    const auto chat = [this](const Exchange& exchange) { OnChat(exchange); };
    const auto tokenize = [](const Exchange& exchange) {
      const size_t messages = ParseJson(exchange->request().body)["messages"].size();
      exchange->Respond({.body = R"({"count":)" + std::to_string(20 * messages) + "}"});
    };
    const auto explain = [](const Exchange& exchange) {
      exchange->Respond(
          {.body = "explained " + exchange->request().path + " " + exchange->request().query + "\n",
           .content_type = "text/plain"});
    };
    auto server = HttpServer::Start({}, {{"GET", "/v1/models", models},
                                         {"POST", "/v1/chat/completions", chat},
                                         {"POST", "/tokenize", tokenize},
                                         {"GET", "/explain/", explain, HttpMatch::kPrefix}});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_->port()); }

  // The next chat is answered so; without one more it is "Well.".
  void Next(HttpResponse response) {
    Next([response](const Exchange& exchange) { exchange->Respond(response); });
  }
  void Next(HttpHandler handler) {
    absl::MutexLock lock(&mutex_);
    script_.push_back(std::move(handler));
  }
  std::vector<Json> bodies() const {
    absl::MutexLock lock(&mutex_);
    return bodies_;
  }

 private:
  void OnChat(const Exchange& exchange) {
    HttpHandler handler = [](const Exchange& e) { e->Respond(Stream(Answer("Well."))); };
    {
      absl::MutexLock lock(&mutex_);
      bodies_.push_back(ParseJson(exchange->request().body));
      if (!script_.empty()) {
        handler = std::move(script_.front());
        script_.pop_front();
      }
    }
    handler(exchange);
  }

  mutable absl::Mutex mutex_;
  std::deque<HttpHandler> script_ ABSL_GUARDED_BY(mutex_);
  std::vector<Json> bodies_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;
};

constexpr char kCtrlC[] = "^C";

// Types these lines.
class ScriptedReader final : public LineReader {
 public:
  explicit ScriptedReader(std::vector<std::string> lines) : lines_(lines.begin(), lines.end()) {}

  InputLine Read(std::string_view) override {
    if (lines_.empty()) return {};
    const std::string line = std::exchange(lines_.front(), {});
    lines_.pop_front();
    if (line == kCtrlC) return {InputLine::Kind::kInterrupted, ""};
    return {InputLine::Kind::kText, line};
  }

  size_t left() const { return lines_.size(); }

 private:
  std::deque<std::string> lines_;
};

struct Talk {
  std::string output;
  bool failed = false;
  size_t lines_left = 0;
};

class ChatSessionTest : public testing::Test {
 protected:
  Talk Type(std::vector<std::string> lines, ChatOptions options = {}) {
    Wakeup wakeup;
    TerminalSignals signals(wakeup);
    ChatConnection connection(server_.url(), wakeup);
    Screen screen(Audience::kPlainTerminal, Screen::Notes::kPeopleOnly);
    ScriptedReader reader(std::move(lines));
    options.request_prefix = "test";
    ChatSession session(
        std::move(options),
        {.connection = connection, .screen = screen, .reader = reader, .signals = &signals});
    testing::internal::CaptureStdout();
    const absl::Status status = session.Run();
    Talk talk{.output = testing::internal::GetCapturedStdout(),
              .failed = session.any_failed(),
              .lines_left = reader.left()};
    EXPECT_TRUE(status.ok()) << status;
    return talk;
  }
  // The contents of the messages of that request.
  std::vector<std::string> Asked(size_t request) const {
    std::vector<std::string> contents;
    const Json body = server_.bodies().at(request);
    for (const Json& message : body["messages"]) {
      contents.push_back(message["content"]);
    }
    return contents;
  }
  using Texts = std::vector<std::string>;

  ScriptedServer server_;
};

TEST_F(ChatSessionTest, EachQuestionBringsTheChatBeforeIt) {
  server_.Next(Stream(Answer("One.")));
  const Talk talk = Type({"one?", "", "two?"});
  EXPECT_THAT(talk.output, HasSubstr("One.\n[first token after"));
  EXPECT_THAT(talk.output, HasSubstr("context 10 of 100]"));
  EXPECT_EQ(Asked(1), (Texts{"one?", "One.", "two?"}));
  EXPECT_EQ(server_.bodies().size(), 2u) << "an empty line asks nothing";
  EXPECT_FALSE(talk.failed);
}

TEST_F(ChatSessionTest, TheRequestHasTheOptions) {
  ChatOptions options{.session_id = "s", .max_tokens = 5, .fields = {{"temperature", 0.5}}};
  options.chat.set_system("Be brief.");
  Type({"/route unified", "a", "/route auto", "b"}, options);
  const Json body = server_.bodies()[0];
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["temperature"], 0.5);
  EXPECT_EQ(body["max_tokens"], 5);
  EXPECT_EQ(body["session_id"], "s");
  EXPECT_EQ(body["route"], "unified");
  EXPECT_EQ(body["messages"][0]["role"], "system");
  EXPECT_FALSE(server_.bodies()[1].contains("route"));
}

TEST_F(ChatSessionTest, AnErrorIsShownAndItsQuestionTakenBack) {
  server_.Next(Stream(Answer("One.")));
  server_.Next({.status = 429, .body = R"({"error":{"message":"too much is in flight"}})"});
  const Talk talk = Type({"one?", "two?", "/retry"});
  EXPECT_THAT(talk.output, HasSubstr("error: HTTP 429: too much is in flight"));
  EXPECT_THAT(talk.output, HasSubstr("/retry asks it again"));
  EXPECT_TRUE(talk.failed);
  EXPECT_EQ(Asked(2), Asked(1)) << "the same question once";
}

TEST_F(ChatSessionTest, AnotherQuestionAfterAnErrorStandsAlone) {
  server_.Next({.status = 503, .body = R"({"error":{"message":"no worker"}})"});
  Type({"one?", "two?"});
  EXPECT_EQ(Asked(1), (Texts{"two?"}));
}

TEST_F(ChatSessionTest, AnAnswerThatIsCutOffIsNoAnswer) {
  server_.Next([](const Exchange& exchange) {
    exchange->StartStream({})->Abort("data: {\"choices\":[{\"delta\":{\"content\":\"Hal\"}}]}\n\n");
  });
  const Talk talk = Type({"one?", "two?"});
  EXPECT_THAT(talk.output, HasSubstr("error: "));
  EXPECT_EQ(Asked(1), (Texts{"two?"}));
}

TEST_F(ChatSessionTest, RetryAsksForAnotherAnswer) {
  server_.Next(Stream(Answer("Bad.")));
  server_.Next(Stream(Answer("Good.")));
  Type({"one?", "/retry", "two?"});
  EXPECT_EQ(Asked(1), (Texts{"one?"}));
  EXPECT_EQ(Asked(2), (Texts{"one?", "Good.", "two?"}));
}

TEST_F(ChatSessionTest, ARetryThatFailsKeepsTheFormerAnswer) {
  server_.Next(Stream(Answer("Good.")));
  server_.Next({.status = 500, .body = "x"});
  Type({"one?", "/retry", "two?"});
  EXPECT_EQ(Asked(2), (Texts{"one?", "Good.", "two?"}));
}

TEST_F(ChatSessionTest, AFullContextIsExplained) {
  server_.Next({.status = 400, .body = R"({"error":{"message":"exceeds the context of 100"}})"});
  EXPECT_THAT(Type({"one?"}).output, HasSubstr("/trim forgets the oldest question"));
  server_.Next(Stream(Answer("cut", "length")));
  EXPECT_THAT(Type({"one?"}).output, HasSubstr("the context is full"));
}

TEST_F(ChatSessionTest, OldTurnsAreForgottenOnlyWhenAsked) {
  Type({"1", "2", "3", "/trim 2", "4"});
  EXPECT_EQ(Asked(2), (Texts{"1", "Well.", "2", "Well.", "3"}));
  EXPECT_EQ(Asked(3), (Texts{"3", "Well.", "4"}));
}

TEST_F(ChatSessionTest, TrimLeavesRoomForTheAnswer) {
  // Each message has 20 tokens here, and a quarter of the 100 are for the answer.
  const Talk talk = Type({"1", "2", "3"}, {.trim = true});
  EXPECT_EQ(Asked(1), (Texts{"1", "Well.", "2"}));
  EXPECT_EQ(Asked(2), (Texts{"2", "Well.", "3"}));
  EXPECT_THAT(talk.output, HasSubstr("[1 oldest questions forgotten"));
}

TEST_F(ChatSessionTest, AChatIsSavedAndLoaded) {
  const std::string file = ::testing::TempDir() + "saved_by_session.json";
  std::filesystem::remove(file);
  Type({"one?", "/save " + file, "/clear", "two?", "/load " + file, "three?"});
  EXPECT_EQ(Asked(1), (Texts{"two?"}));
  EXPECT_EQ(Asked(2), (Texts{"one?", "Well.", "three?"}));
  std::filesystem::remove(file);
}

TEST_F(ChatSessionTest, CommandsSayWhatIsSet) {
  const Talk talk = Type({"/system Be brief.", "/system", "/system -", "/system", "/route",
                          "/route sideways", "/explain", "/nonsense", "/help", "/stats"});
  for (const char* text :
       {"Be brief.\n(no system text)\nauto\n", "/route sideways: give auto", "nothing was asked",
        "there is no command /nonsense", "/explain", "0 answers"}) {
    EXPECT_THAT(talk.output, HasSubstr(text));
  }
  EXPECT_TRUE(server_.bodies().empty());
}

TEST_F(ChatSessionTest, TheLastAnswerIsExplainedByItsId) {
  EXPECT_THAT(Type({"a", "b", "/explain"}).output, HasSubstr("explained /explain/test-2 columns="));
}

TEST_F(ChatSessionTest, LinesThatEndInABackslashAreOneQuestion) {
  Type({"first\\", "second"});
  EXPECT_EQ(Asked(0), (Texts{"first\nsecond"}));
}

TEST_F(ChatSessionTest, EscapeSequencesAndReasoningAreMadeVisible) {
  server_.Next(
      Stream("data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\\u001b[2J\"}}]}\n\n" +
             Answer("\033]0;owned\007done")));
  const Talk talk = Type({"a"});
  EXPECT_THAT(talk.output, HasSubstr("[reasoning]\nhm␛[2J\n[answer]\n␛]0;owned␇done\n"));
  EXPECT_THAT(talk.output, Not(HasSubstr("\033")));
}

TEST_F(ChatSessionTest, CtrlCBeforeAnAnswerStopsItAndTheChatGoesOn) {
  Exchange waiting;  // never answered
  server_.Next([&waiting](const Exchange& exchange) {
    waiting = exchange;
    kill(getpid(), SIGINT);
  });
  const Talk talk = Type({"one?", "/retry"});
  EXPECT_THAT(talk.output, HasSubstr("/retry asks it again"));
  EXPECT_EQ(Asked(1), (Texts{"one?"}));
  EXPECT_FALSE(talk.failed);
}

TEST_F(ChatSessionTest, TheSecondCtrlCAtThePromptLeaves) {
  EXPECT_EQ(Type({kCtrlC, "a", kCtrlC, kCtrlC, "b"}).lines_left, 1u);
  EXPECT_EQ(Type({"a\\", kCtrlC, kCtrlC, kCtrlC, "b"}).lines_left, 1u)
      << "the first one throws the open line away";
  EXPECT_EQ(Type({"/quit", "b"}).lines_left, 1u);
}

TEST(ChatSessionWithoutServerTest, SaysHowToStartOne) {
  Wakeup wakeup;
  ChatConnection connection("http://127.0.0.1:1", wakeup);
  Screen screen(Audience::kProgram, Screen::Notes::kPeopleOnly);
  ScriptedReader reader({"a"});
  ChatSession session({}, {.connection = connection, .screen = screen, .reader = reader});
  const absl::Status status = session.Run();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("tandem up"));
}

}  // namespace
}  // namespace tandem::terminal::chat_session_test
