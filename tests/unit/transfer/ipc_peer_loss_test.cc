// What is left of shared memory when its connection closes or its process dies.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "base/hash.h"
#include "gtest/gtest.h"
#include "tests/support/ipc_fixture.h"

namespace tandem::ipc_peer_loss_test {
namespace {

// The rest of a child's life: connects, says where its pool lies, and hangs.
[[noreturn]] void SendUntilKilled(const std::string& address) {
  const Sender sender;
  auto channel = sender.medium->Connect(address);
  if (!channel.ok()) _exit(1);
  while (!(*channel)->Establish().value_or(false)) AwaitEvent(**channel);
  std::array<OfferedPayload, 1> payload = {{{.bytes = sender.pool.bytes()}}};
  if (!(*channel)->side_channel()->Offer(payload).ok()) _exit(2);
  const std::array<uint64_t, 2> words = {payload[0].handle, payload[0].hash};
  const iovec part = {const_cast<uint64_t*>(words.data()), sizeof(words)};
  if ((*channel)->Write({&part, 1}).value_or(0) != sizeof(words)) _exit(3);
  while (true) pause();
}

TEST(IpcPeerLoss, WhatAPeerSharesOutlivesIt) {
  const auto receiver = NewReceiver();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) SendUntilKilled(receiver->address());
  const auto channel = AwaitConnection(*receiver);
  ASSERT_TRUE(channel);
  while (!*channel->Establish()) ASSERT_TRUE(AwaitEvent(*channel));
  std::array<uint64_t, 2> words{};
  const iovec part = {words.data(), sizeof(words)};
  ASSERT_TRUE(AwaitEvent(*channel));
  ASSERT_EQ(channel->Read({&part, 1}).value(), sizeof(words));
  const auto found = channel->side_channel()->Find(words[0], kPoolBytes);
  ASSERT_TRUE(found.ok()) << found.status();
  const auto first_half = found->first(kPoolBytes / 2);
  std::vector<std::byte> read(first_half.begin(), first_half.end());
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const auto second_half = found->subspan(kPoolBytes / 2);
  read.insert(read.end(), second_half.begin(), second_half.end());
  EXPECT_EQ(Hash64(read), words[1]) << "memory of a dead process changed";
  ASSERT_TRUE(AwaitEvent(*channel));
  EXPECT_EQ(channel->Read({&part, 1}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(IpcPeerLoss, ClosedConnectionsLeaveNothingBehind) {
  const Sender sender;
  const auto receiver = NewReceiver();
  const auto connect = [&] {
    const ChannelPair pair = ConnectPair(*sender.medium, *receiver);
    ASSERT_TRUE(pair.accepted);
    EXPECT_TRUE(pair.accepted->side_channel()->Find(0, kPoolBytes).ok());
  };
  connect();  // what the first one opens for good
  const size_t mappings = Mappings();
  const size_t descriptors = OpenDescriptors();
  for (int i = 0; i < 1000; ++i) {
    connect();
    ASSERT_LE(Mappings(), mappings) << i;
    ASSERT_LE(OpenDescriptors(), descriptors) << i;
  }
}

}  // namespace
}  // namespace tandem::ipc_peer_loss_test
