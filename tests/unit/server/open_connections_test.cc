#include "server/services/open_connections.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(OpenConnectionsTest, ConnectionsThatSomebodyElseClosedAreNotCounted) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  OpenConnections connections;
  for (const int end : ends) connections.Add(end);
  EXPECT_EQ(connections.Count(), 2);
  close(ends[0]);
  EXPECT_EQ(connections.upper_bound(), 2);
  EXPECT_EQ(connections.Count(), 1);
  EXPECT_EQ(connections.upper_bound(), 1);
  close(ends[1]);
  EXPECT_EQ(connections.Count(), 0);
}

TEST(OpenConnectionsTest, ADescriptorThatNowStandsForSomethingElseIsNotCounted) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  OpenConnections connections;
  connections.Add(ends[0]);
  const int file = open("/dev/null", O_RDONLY);
  ASSERT_EQ(dup2(file, ends[0]), ends[0]);
  EXPECT_EQ(connections.Count(), 0);
  connections.Add(ends[1]);
  ASSERT_EQ(dup2(socket(AF_UNIX, SOCK_STREAM, 0), ends[1]), ends[1]) << "another socket";
  EXPECT_EQ(connections.Count(), 0);
  connections.Add(ends[1]);
  EXPECT_EQ(connections.Count(), 1);
}

}  // namespace
}  // namespace tandem
