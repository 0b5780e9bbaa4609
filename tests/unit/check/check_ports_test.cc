#include "server/check/check_ports.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transfer/media/tcp/socket.h"

namespace tandem::check_ports_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(CheckPortsTest, APortThatIsTakenIsAnErrorUnlessItIsNotAsked) {
  const auto taken = ListenEverywhere("127.0.0.1", 0);
  ASSERT_TRUE(taken.ok()) << taken.status();
  const std::vector<WantedPort> ports = {
      {"router", "--port", "127.0.0.1", LocalPort(taken->front())},
      {"router", "--http-port", "127.0.0.1", 0}};
  Findings asked;
  CheckPorts(ports, PortUse::kMustBeFree, asked);
  ASSERT_THAT(asked.all(), SizeIs(1));
  EXPECT_THAT(asked.all()[0].text, HasSubstr("--skip-ports"));
  Findings not_asked;
  CheckPorts(ports, PortUse::kNotAsked, not_asked);
  EXPECT_THAT(not_asked.all(), IsEmpty());
}

TEST(CheckPortsTest, APortThatTwoWantIsAnError) {
  const std::vector<WantedPort> ports = {{"router", "--port", "0.0.0.0", 9000},
                                         {"decode-0", "--data-port", "127.0.0.1", 9000},
                                         {"decode-1", "--port", "127.0.0.1", 0},
                                         {"decode-2", "--port", "127.0.0.1", 0}};
  Findings findings;
  CheckPorts(ports, PortUse::kNotAsked, findings);
  ASSERT_THAT(findings.all(), SizeIs(1));
  EXPECT_EQ(findings.all()[0].part, "decode-0");
  EXPECT_THAT(findings.all()[0].text, HasSubstr("--data-port 9000 is also --port of router"));
}

TEST(CheckPortsTest, DifferentAddressesMayHaveTheSamePort) {
  Findings findings;
  CheckPorts({{"a", "--port", "127.0.0.1", 9000}, {"b", "--port", "127.0.0.2", 9000}},
             PortUse::kNotAsked, findings);
  EXPECT_THAT(findings.all(), IsEmpty());
}

// Each is compared with all before it, not with the first of its number alone.
TEST(CheckPortsTest, TheSameAddressAndPortAsASecondOneIsAnError) {
  Findings findings;
  CheckPorts({{"a", "--port", "127.0.0.1", 9000},
              {"b", "--port", "127.0.0.2", 9000},
              {"c", "--port", "127.0.0.2", 9000}},
             PortUse::kNotAsked, findings);
  ASSERT_THAT(findings.all(), SizeIs(1));
  EXPECT_EQ(findings.all()[0].part, "c");
  EXPECT_THAT(findings.all()[0].text, HasSubstr("also --port of b"));
}

TEST(FindingsTest, ErrorsOfSeveralPartsAreOneFinding) {
  Findings findings;
  findings.Add(Severity::kWarning, "a", "x");
  EXPECT_FALSE(findings.has_errors());
  findings.Add(Severity::kError, "a", "x");
  findings.Add(Severity::kError, "b", "x");
  ASSERT_THAT(findings.all(), SizeIs(2));
  EXPECT_EQ(findings.all()[1].part, "a, b");
  EXPECT_TRUE(findings.has_errors());
}

}  // namespace
}  // namespace tandem::check_ports_test
