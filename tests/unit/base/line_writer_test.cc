// What is written to a descriptor whose reader stands still, goes on, or has gone.

#include "base/line_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::line_writer_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr int kMoreThanFits = 20000;

// Shorter than the note, so that the note does not fit where a line did not.
std::string Line() { return std::string(19, 'x') + "\n"; }

class LineWriterTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    const bool is_pipe = GetParam() == std::string("pipe");
    const int made = is_pipe ? pipe(ends_) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends_);
    ASSERT_EQ(made, 0);
  }
  void TearDown() override {
    for (const int end : ends_) close(end);
  }
  // All that is there.
  std::string Read() {
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = read(ends_[0], buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }
  // Returns although nobody reads.
  void Fill(LineWriter& writer) {
    for (int i = 0; i < kMoreThanFits; ++i) writer.Write(Line());
  }

  int ends_[2] = {-1, -1};
};

TEST_P(LineWriterTest, LinesThatNobodyReadsAreDroppedAndCounted) {
  LineWriter writer(ends_[1]);
  writer.Write("first\n");
  EXPECT_EQ(writer.dropped(), 0u);
  Fill(writer);
  const uint64_t dropped = writer.dropped();
  EXPECT_GT(dropped, 0u);
  const std::string text = Read();
  EXPECT_EQ(text.substr(0, 6), "first\n");
  EXPECT_EQ((text.size() - 6) / Line().size(), kMoreThanFits - dropped);
}

TEST_P(LineWriterTest, ANoteSaysHowManyLinesAreMissingOnceTheReaderGoesOn) {
  LineWriter writer(ends_[1]);
  Fill(writer);
  const uint64_t dropped = writer.dropped();
  Read();
  writer.Write("last\n");
  const std::string text = Read();
  EXPECT_THAT(text, HasSubstr("(" + std::to_string(dropped) + " lines are missing here"));
  EXPECT_THAT(text, EndsWith(")\nlast\n"));
  EXPECT_EQ(writer.dropped(), dropped);
}

TEST_P(LineWriterTest, AReaderThatHasGoneEndsNothing) {
  LineWriter writer(ends_[1]);
  close(std::exchange(ends_[0], -1));
  writer.Write("one\n");
  writer.Write("two\n");
  EXPECT_EQ(writer.dropped(), 2u);
}

TEST_P(LineWriterTest, TheSharedDescriptorStaysBlocking) {
  LineWriter writer(ends_[1]);
  Fill(writer);
  EXPECT_EQ(fcntl(ends_[1], F_GETFL) & O_NONBLOCK, 0);
}

INSTANTIATE_TEST_SUITE_P(To, LineWriterTest, testing::Values("pipe", "socket"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tandem::line_writer_test
