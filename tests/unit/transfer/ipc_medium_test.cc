// What only shared places can do to a worker: peers that show memory which is not what they say,
// name places outside of it, or die while theirs is read.
#include "transfer/ipc/ipc_medium.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/device.h"
#include "tests/support/channel_pair.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/late_device.h"
#include "transfer/unix_socket.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using Kind = MemoryHandle::Kind;

constexpr size_t kPoolBytes = size_t{1} << 20;
constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

Device& Cpu() {
  static const std::unique_ptr<Device> device = NewCpuDevice();
  return *device;
}

void FillPattern(std::span<std::byte> bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) >> 3);
}

std::unique_ptr<IpcMedium> NewReceiver(Device& device = Cpu()) {
  return *IpcMedium::Open({.device = &device});
}

// A side that sends: a pool and what it shares of it.
struct Sender {
  explicit Sender(Device& device = Cpu()) {
    FillPattern(pool.bytes(), 1);
    FillPattern(probes.bytes(), 2);
    medium = *IpcMedium::Open({.device = &device, .shared = {pool.bytes(), probes.bytes()}});
  }

  DeviceBuffer pool = *Cpu().AllocateShared(kPoolBytes);
  DeviceBuffer probes = *Cpu().AllocateShared(4096);
  std::unique_ptr<IpcMedium> medium;
};

TEST(IpcMedium, MemoryThatCannotBeSharedIsRefused) {
  LateDevice without;
  EXPECT_EQ(IpcMedium::Open({.device = &without}).status().code(),
            absl::StatusCode::kUnimplemented);
  const DeviceBuffer own = *Cpu().Allocate(4096);
  EXPECT_EQ(IpcMedium::Open({.device = &Cpu(), .shared = {own.bytes()}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const DeviceBuffer shared = *Cpu().AllocateShared(4096);
  EXPECT_EQ(
      IpcMedium::Open({.device = &Cpu(), .shared = {shared.bytes().first(64)}}).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      IpcMedium::Open({.device = &Cpu(), .shared = {std::span<const std::byte>()}}).status().code(),
      absl::StatusCode::kInvalidArgument);
  const std::vector<std::span<const std::byte>> nine(9, shared.bytes());
  const absl::Status many = IpcMedium::Open({.device = &Cpu(), .shared = nine}).status();
  EXPECT_EQ(many.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(many), HasSubstr("at most 8"));
}

TEST(IpcMedium, SetsNothingAsideButHashes) {
  EXPECT_EQ(NewReceiver()->buffer_bytes(), SharedLane::kMaxPayloads * sizeof(uint64_t));
}

TEST(IpcMedium, CarriesOnlyWhatItShares) {
  const Sender sender;
  const IpcMedium& medium = *sender.medium;
  EXPECT_TRUE(medium.has_lanes());
  const std::span<const std::byte> pool = sender.pool.bytes();
  EXPECT_EQ(medium.MayCarry(pool), absl::OkStatus());
  EXPECT_EQ(medium.MayCarry(pool.last(1)), absl::OkStatus());
  EXPECT_EQ(medium.MayCarry(sender.probes.bytes()), absl::OkStatus());
  const std::vector<std::byte> elsewhere(100);
  const std::array<std::span<const std::byte>, 4> outside = {
      std::span(pool.data() - 1, 2), std::span(pool.data() + pool.size() - 1, 2),
      std::span(pool.data() + pool.size(), 1), std::span(elsewhere)};
  for (const std::span<const std::byte> bytes : outside) {
    const absl::Status status = medium.MayCarry(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr(fmt::format("{} bytes", bytes.size())));
  }
}

TEST(IpcMedium, PayloadsAreFoundWhereTheyLie) {
  Sender sender;
  const auto receiver = NewReceiver();
  const ChannelPair pair = ConnectPair(*sender.medium, *receiver);
  ASSERT_TRUE(pair.accepted);
  std::array<LanePayload, 3> payloads = {{{.bytes = sender.pool.bytes().first(1)},
                                          {.bytes = sender.pool.bytes().last(5000)},
                                          {.bytes = sender.probes.bytes()}}};
  EXPECT_EQ(pair.connected->lane()->Offer(payloads).value(), 0u) << "something to announce";
  for (const LanePayload& payload : payloads) {
    EXPECT_EQ(payload.hash, Hash64(payload.bytes));
    const auto found = pair.accepted->lane()->Find(payload.place, payload.bytes.size());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_NE(found->data(), payload.bytes.data());
    EXPECT_TRUE(std::ranges::equal(*found, payload.bytes));
  }
  // No copy of the moment of the Offer.
  const auto found = *pair.accepted->lane()->Find(payloads[1].place, 5000);
  sender.pool.bytes().last(1)[0] ^= std::byte{1};
  EXPECT_TRUE(std::ranges::equal(found, payloads[1].bytes));
  EXPECT_NE(Hash64(found), payloads[1].hash);
}

TEST(IpcMedium, PlacesOutsideOfTheMemoryAreNotFound) {
  const Sender sender;
  const auto receiver = NewReceiver();
  const ChannelPair pair = ConnectPair(*sender.medium, *receiver);
  ASSERT_TRUE(pair.accepted);
  const PayloadLane& lane = *pair.accepted->lane();
  constexpr uint64_t kProbes = uint64_t{1} << kIpcOffsetBits;
  EXPECT_TRUE(lane.Find(0, kPoolBytes).ok());
  EXPECT_TRUE(lane.Find(kPoolBytes, 0).ok());
  EXPECT_TRUE(lane.Find(kProbes | 4095, 1).ok());
  const std::pair<uint64_t, size_t> outside[] = {{0, kPoolBytes + 1},
                                                 {kPoolBytes, 1},
                                                 {1, kPoolBytes},
                                                 {kProbes | 4095, 2},
                                                 {kProbes - 1, 1},
                                                 {kProbes - 1, ~size_t{0}},
                                                 {uint64_t{2} << kIpcOffsetBits, 0},
                                                 {~uint64_t{0}, 1},
                                                 {1, ~size_t{0}}};
  for (const auto& [place, bytes] : outside) {
    EXPECT_EQ(lane.Find(place, bytes).status().code(), absl::StatusCode::kInvalidArgument)
        << place << " " << bytes;
  }
  EXPECT_EQ(pair.accepted->lane()->Expect(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.connected->lane()->Expect(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.connected->lane()->Find(0, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(IpcMedium, WhoSharesNothingConnectsAllTheSame) {
  const auto one = NewReceiver();
  const auto other = NewReceiver();
  const ChannelPair pair = ConnectPair(*one, *other);
  ASSERT_TRUE(pair.accepted);
  EXPECT_FALSE(pair.accepted->lane()->Find(0, 0).ok());
}

// A device that does not take others' memory.
class RefusingDevice final : public ForwardingDevice {
 public:
  explicit RefusingDevice(absl::Status why) : ForwardingDevice(Cpu()), why_(std::move(why)) {}
  absl::StatusOr<DeviceBuffer> OpenShared(const MemoryHandle&) override { return why_; }

 private:
  const absl::Status why_;
};

// How establishing ends for a side that sends to a worker with `device`.
absl::Status OutcomeWith(Device& device) {
  const Sender sender;
  const auto receiver = NewReceiver(device);
  const auto connected = *sender.medium->Connect(receiver->address());
  const auto accepted = AwaitConnection(*receiver);
  EXPECT_FALSE(accepted->Establish().ok());
  EXPECT_EQ(receiver->refused(), 1u);
  EXPECT_TRUE(AwaitEvent(*connected));
  return connected->Establish().status();
}

TEST(IpcMedium, ThePeerIsToldWhenItsMemoryIsNotTaken) {
  RefusingDevice other_kind(FailedPrecondition("memory of another kind"));
  EXPECT_EQ(OutcomeWith(other_kind).code(), absl::StatusCode::kFailedPrecondition);
  RefusingDevice no_handle(InvalidArgument("no handle"));
  EXPECT_EQ(OutcomeWith(no_handle).code(), absl::StatusCode::kFailedPrecondition);
  RefusingDevice full(ResourceExhausted("no addresses"));
  EXPECT_EQ(OutcomeWith(full).code(), absl::StatusCode::kUnavailable);
}

// A device of another kind than the cpu's: its handles say so.
class ForeignDevice final : public ForwardingDevice {
 public:
  ForeignDevice() : ForwardingDevice(Cpu()) {}
  absl::StatusOr<MemoryHandle> Share(std::span<const std::byte> memory) override {
    ASSIGN_OR_RETURN(MemoryHandle handle, Cpu().Share(memory));
    handle.kind = Kind::kDeviceFile;
    return handle;
  }
};

TEST(IpcMedium, MemoryOfAnotherKindOfDeviceIsNotTaken) {
  ForeignDevice gpu;
  const Sender sender(gpu);
  const auto receiver = NewReceiver();
  const auto connected = *sender.medium->Connect(receiver->address());
  const absl::Status refused = AwaitConnection(*receiver)->Establish().status();
  EXPECT_THAT(Message(refused), HasSubstr("kind 2"));
  EXPECT_EQ(connected->Establish().status().code(), absl::StatusCode::kFailedPrecondition);
}

UniqueFd MemoryFile(size_t bytes, int seals = kSealed) {
  UniqueFd memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(memory.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  return memory;
}

IpcGreeting HostFiles(std::initializer_list<uint64_t> sizes) {
  IpcGreeting greeting;
  for (uint64_t bytes : sizes) {
    greeting.segments.push_back({.kind = Kind::kHostFile, .bytes = bytes});
  }
  return greeting;
}

// Somebody who greets as the test says.
class FalseConnector {
 public:
  // How establishing ends on the accepting side.
  absl::Status Greet(std::span<const std::byte> bytes, std::vector<int> files) {
    socket_ = *ConnectUnix(ParseHostAddress(medium_->address())->name);
    EXPECT_EQ(SendWithDescriptors(socket_.get(), bytes, files), absl::OkStatus());
    channel_ = AwaitConnection(*medium_);
    return channel_->Establish().status();
  }
  absl::Status Greet(const IpcGreeting& greeting, const std::vector<UniqueFd>& files) {
    std::vector<int> numbers;
    for (const UniqueFd& file : files) numbers.push_back(file.get());
    return Greet(EncodeIpcGreeting(greeting), std::move(numbers));
  }
  // What it is answered.
  absl::StatusCode Answer() {
    std::array<std::byte, kIpcAnswerBytes> answer;
    EXPECT_EQ(recv(socket_.get(), answer.data(), answer.size(), 0), ssize_t{kIpcAnswerBytes});
    return *ParseIpcAnswer(answer);
  }
  UniqueFd& socket() { return socket_; }
  ByteChannel& channel() { return *channel_; }

 private:
  const std::unique_ptr<IpcMedium> medium_ = NewReceiver();
  UniqueFd socket_;
  std::unique_ptr<ByteChannel> channel_;
};

std::vector<UniqueFd> Files(std::initializer_list<size_t> sizes, int seals = kSealed) {
  std::vector<UniqueFd> files;
  for (size_t bytes : sizes) files.push_back(MemoryFile(bytes, seals));
  return files;
}

TEST(IpcMedium, MemoryThatIsNotWhatThePeerSaysIsNotOpened) {
  FalseConnector peer;
  EXPECT_EQ(peer.Greet(HostFiles({4096, 8192}), Files({4096, 8192})), absl::OkStatus());
  EXPECT_EQ(peer.Answer(), absl::StatusCode::kOk);
  const auto refused = [&peer](uint64_t said, std::vector<UniqueFd> files) {
    const absl::Status status = peer.Greet(HostFiles({said}), files);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(peer.Answer(), absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  EXPECT_THAT(refused(1 << 20, Files({4096})), HasSubstr("4096"));
  EXPECT_THAT(refused(4096, Files({1 << 20})), HasSubstr("1048576"));
  EXPECT_THAT(refused(4096, Files({4096}, F_SEAL_GROW)), HasSubstr("may shrink"));
  std::vector<UniqueFd> no_memory;
  no_memory.emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
  refused(4096, std::move(no_memory));
}

TEST(IpcMedium, EachSegmentComesWithItsFile) {
  FalseConnector peer;
  EXPECT_EQ(peer.Greet(HostFiles({4096, 4096}), Files({4096})).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer.Answer(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer.Greet(HostFiles({4096}), Files({4096, 4096})).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer.Answer(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer.Greet(HostFiles({}), {}), absl::OkStatus());
}

TEST(IpcMedium, AGreetingThatIsNoneIsRefused) {
  FalseConnector peer;
  std::array<std::byte, kIpcGreetingBytes> nonsense;
  nonsense.fill(std::byte{0x5A});
  EXPECT_EQ(peer.Greet(nonsense, {}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer.Answer(), absl::StatusCode::kDataLoss);
}

size_t OpenDescriptors() {
  return static_cast<size_t>(std::ranges::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

// A message per byte, each with as many files as it may have.
TEST(IpcMedium, APeerCannotFillTheTableOfFiles) {
  FalseConnector peer;
  const std::vector<UniqueFd> files = Files({64, 64, 64, 64, 64, 64, 64, 64});
  std::vector<int> numbers;
  for (const UniqueFd& file : files) numbers.push_back(file.get());
  const size_t before = OpenDescriptors();
  const std::array<std::byte, 1> byte{};
  absl::Status status = peer.Greet(byte, numbers);
  size_t rounds = 1;
  while (status.ok() && rounds < 100) {
    ASSERT_EQ(SendWithDescriptors(peer.socket().get(), byte, numbers), absl::OkStatus());
    status = peer.channel().Establish().status();
    ++rounds;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(rounds, 2u);
  EXPECT_LE(OpenDescriptors(), before + 2 + 2 * kMaxIpcSegments);
}

// More at once than Received has room for.
TEST(IpcMedium, NineFilesAtOnceAreRefused) {
  FalseConnector peer;
  ASSERT_EQ(peer.Greet(std::span<const std::byte>(EncodeIpcGreeting({})).first(1), {}),
            absl::OkStatus());
  const UniqueFd file = MemoryFile(64);
  alignas(cmsghdr) std::byte space[CMSG_SPACE(9 * sizeof(int))] = {};
  std::byte byte{};
  iovec part = {&byte, 1};
  msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(9 * sizeof(int));
  for (size_t i = 0; i < 9; ++i) {
    const int number = file.get();
    std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &number, sizeof(int));
  }
  ASSERT_EQ(sendmsg(peer.socket().get(), &message, 0), 1);
  const size_t before = OpenDescriptors();
  const absl::Status status = peer.channel().Establish().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("more than 8"));
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(IpcMedium, AGreetingMayComeByteByByte) {
  FalseConnector peer;
  const auto greeting = EncodeIpcGreeting(HostFiles({4096}));
  const UniqueFd file = MemoryFile(4096);
  ASSERT_EQ(peer.Greet(std::span(greeting).first(1), {file.get()}), absl::OkStatus());
  for (size_t at = 1; at < greeting.size(); ++at) {
    EXPECT_EQ(peer.channel().lane(), nullptr);
    ASSERT_EQ(send(peer.socket().get(), &greeting[at], 1, 0), 1);
    ASSERT_EQ(peer.channel().Establish().value(), at + 1 == greeting.size());
  }
  EXPECT_EQ(peer.Answer(), absl::StatusCode::kOk);
  EXPECT_TRUE(peer.channel().lane()->Find(4095, 1).ok());
}

// An answer of something else that listens at a name.
TEST(IpcMedium, AnAnswerThatIsNoneIsRefused) {
  const Sender sender;
  const HostAddress address = *NewHostAddress();
  const UniqueFd listener = *ListenUnix(address.name);
  const auto connected = *sender.medium->Connect(address.Text());
  const UniqueFd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::array<std::byte, kIpcAnswerBytes> nonsense{};
  ASSERT_EQ(send(socket.get(), nonsense.data(), nonsense.size(), 0), ssize_t{kIpcAnswerBytes});
  EXPECT_EQ(connected->Establish().status().code(), absl::StatusCode::kFailedPrecondition);
}

// The life of a process of another user; its exit status says what went wrong.
int ConnectAsNobody(const std::string& address) {
  if (setresuid(65534, 65534, 65534) != 0) return 1;
  // The connecting side looks who listens, too: nobody shows its memory to another user's process.
  const Sender sender;
  if (sender.medium->Connect(address).status().code() != absl::StatusCode::kFailedPrecondition) {
    return 2;
  }
  const auto socket = ConnectUnix(ParseHostAddress(address)->name);
  std::array<std::byte, kIpcAnswerBytes> answer;
  pollfd watched = {.fd = socket->get(), .events = POLLIN};
  if (poll(&watched, 1, 60'000) <= 0) return 3;
  if (recv(socket->get(), answer.data(), answer.size(), 0) != ssize_t{kIpcAnswerBytes}) return 4;
  return *ParseIpcAnswer(answer) == absl::StatusCode::kPermissionDenied ? 0 : 5;
}

TEST(IpcMedium, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto receiver = NewReceiver();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(ConnectAsNobody(receiver->address()));
  while (receiver->refused() < 2) {
    pollfd listener = {.fd = receiver->listener_fd(), .events = POLLIN};
    ASSERT_GT(poll(&listener, 1, 60'000), 0);
    const auto accepted = receiver->Accept();
    ASSERT_TRUE(accepted.ok() && *accepted == nullptr);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The rest of a child's life: connects, says where its pool lies, and hangs.
[[noreturn]] void SendUntilKilled(const std::string& address) {
  const Sender sender;
  auto channel = sender.medium->Connect(address);
  if (!channel.ok()) _exit(1);
  while (!(*channel)->Establish().value_or(false)) AwaitEvent(**channel);
  std::array<LanePayload, 1> payload = {{{.bytes = sender.pool.bytes()}}};
  if (!(*channel)->lane()->Offer(payload).ok()) _exit(2);
  const std::array<uint64_t, 2> words = {payload[0].place, payload[0].hash};
  const iovec part = {const_cast<uint64_t*>(words.data()), sizeof(words)};
  if ((*channel)->Write({&part, 1}).value_or(0) != sizeof(words)) _exit(3);
  while (true) pause();
}

TEST(IpcMedium, WhatAPeerSharesOutlivesIt) {
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
  const auto found = channel->lane()->Find(words[0], kPoolBytes);
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

// Of memory that is or was shared; the heap may grow as it likes.
size_t Mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") != std::string::npos) ++count;
  }
  return count;
}

TEST(IpcMedium, ClosedConnectionsLeaveNothingBehind) {
  const Sender sender;
  const auto receiver = NewReceiver();
  const auto connect = [&] {
    const ChannelPair pair = ConnectPair(*sender.medium, *receiver);
    ASSERT_TRUE(pair.accepted);
    EXPECT_TRUE(pair.accepted->lane()->Find(0, kPoolBytes).ok());
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

// Refused ones as well.
TEST(IpcMedium, RefusedConnectionsLeaveNothingBehind) {
  FalseConnector peer;
  peer.Greet(HostFiles({1 << 20, 4096}), Files({1 << 20, 64})).IgnoreError();
  const size_t mappings = Mappings();
  const size_t descriptors = OpenDescriptors();
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(peer.Greet(HostFiles({1 << 20, 4096}), Files({1 << 20, 64})).ok());
    ASSERT_LE(Mappings(), mappings) << i;
    ASSERT_LE(OpenDescriptors(), descriptors) << i;
  }
}

}  // namespace
}  // namespace tandem
