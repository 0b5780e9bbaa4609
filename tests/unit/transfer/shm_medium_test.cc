// What only shared memory can do to a worker: peers that give memory which is not what they say,
// wake without being asked, hang with a slot in their hands, or belong to another user.
#include "transfer/media/shm/shm_medium.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/device.h"
#include "tests/support/channel_pair.h"
#include "transfer/media/shm/doorbell.h"
#include "transfer/media/shm/setup.h"
#include "transfer/media/shm/shm_channel.h"
#include "transfer/media/unix_socket.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr SlotLayout kLayout = {
    .area_bytes = 64 << 10, .forward_bytes = 16 << 10, .back_bytes = 16 << 10};
constexpr size_t kSlots = 2;
constexpr size_t kMaxPayloadBytes = 16 << 10;

Device& Host() {
  static const std::unique_ptr<Device> device = NewCpuDevice();
  return *device;
}

std::unique_ptr<ShmMedium> NewMedium(size_t max_payload_bytes = kMaxPayloadBytes) {
  const auto slot_bytes = static_cast<size_t>(kLayout.slot_bytes());
  return *ShmMedium::Open({.device = &Host(),
                           .buffer_bytes = kSlots * slot_bytes,
                           .slot_bytes = slot_bytes,
                           .ring_bytes = kLayout.forward_bytes,
                           .max_payload_bytes = max_payload_bytes});
}

AreaCopier NewCopier() {
  return {.stream = *ExtentStream::Create(Host(), AreaCopier::kMaxPayloads),
          .max_payload_bytes = kMaxPayloadBytes,
          .copies = {}};
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(ShmSetupMessage, HasOneEncoding) {
  const ShmSetup slot = {.layout = kLayout};
  EXPECT_EQ(*ParseShmSetup(EncodeShmSetup(slot)), slot);
  const ShmSetup refusal = {.code = absl::StatusCode::kResourceExhausted};
  EXPECT_EQ(*ParseShmSetup(EncodeShmSetup(refusal)), refusal);
  const auto whole = EncodeShmSetup(slot);
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    auto flipped = whole;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(ParseShmSetup(flipped).status().code(), absl::StatusCode::kDataLoss) << bit;
  }
}

TEST(ShmSetupMessage, SizesThatCannotBeAreRefused) {
  for (const SlotLayout& layout :
       {SlotLayout{0, 4096, 4096}, SlotLayout{4096, 0, 4096}, SlotLayout{4096, 4096, 0},
        SlotLayout{4097, 4096, 4096}, SlotLayout{4096, kMaxSlotPartBytes + 4096, 4096},
        SlotLayout{~uint64_t{0} - 4095, 4096, 4096}}) {
    EXPECT_EQ(ParseShmSetup(EncodeShmSetup({.layout = layout})).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  const ShmSetup both = {.code = absl::StatusCode::kInternal, .layout = kLayout};
  EXPECT_EQ(ParseShmSetup(EncodeShmSetup(both)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ShmMedium, OptionsThatCannotBeAreRefused) {
  for (const ShmOptions& options :
       {ShmOptions{.buffer_bytes = 1 << 20}, ShmOptions{.slot_bytes = 128 << 10},
        ShmOptions{.slot_bytes = (4 << 20) + 1}, ShmOptions{.ring_bytes = 0},
        ShmOptions{.max_payload_bytes = 2 << 20}}) {
    EXPECT_EQ(ShmMedium::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ShmMedium, PayloadsThatDoNotFitAreRefusedByWhoHasThem) {
  const auto medium = NewMedium();
  const std::vector<std::byte> payload(kMaxPayloadBytes + 1);
  EXPECT_EQ(medium->MayCarry(std::span(payload).first(kMaxPayloadBytes)), absl::OkStatus());
  const absl::Status status = medium->MayCarry(payload);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("16385"));
}

TEST(ShmMedium, OneReleasedPayloadIsRoomForOneMore) {
  constexpr size_t kHalfArea = kLayout.area_bytes / 2;
  const auto from = NewMedium(kHalfArea);
  const auto to = NewMedium(kHalfArea);
  const ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_NE(pair.accepted, nullptr);
  const std::vector<std::byte> bytes(kHalfArea, std::byte{7});
  std::vector<LanePayload> payloads = {{.bytes = bytes}, {.bytes = bytes}};
  PayloadLane& sending = *pair.connected->lane();
  PayloadLane& receiving = *pair.accepted->lane();
  ASSERT_TRUE(sending.Offer(payloads).ok());
  ASSERT_EQ(sending.room().bytes, 0u);
  for (const LanePayload& payload : payloads) {
    ASSERT_TRUE(receiving.Find(payload.place, kHalfArea).ok());
    receiving.Release(payload.place, kHalfArea);
    EXPECT_EQ(sending.room().bytes, kHalfArea) << payload.place;
    LanePayload next = {.bytes = bytes};
    ASSERT_TRUE(sending.Offer({&next, 1}).ok());
    EXPECT_EQ(sending.room().bytes, 0u);
  }
}

TEST(ShmMedium, ReachesItsOwnHostOnly) {
  const auto medium = NewMedium();
  std::string elsewhere = medium->address();
  elsewhere[0] = elsewhere[0] == 'f' ? '0' : 'f';
  const absl::Status status = medium->MayReach(elsewhere);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("another host"));
}

TEST(ShmMedium, MemoryIsSetAsideAtTheStart) {
  const auto medium = NewMedium();
  EXPECT_EQ(medium->memory().size(), kSlots * kLayout.slot_bytes());
  EXPECT_GT(medium->buffer_bytes(), medium->memory().size());
  std::vector<unsigned char> resident(medium->memory().size() / kPageBytes);
  ASSERT_EQ(mincore(medium->memory().data(), medium->memory().size(), resident.data()), 0);
  EXPECT_THAT(resident, ::testing::Each(1));
}

// What a connecting peer gets to hear when it cannot be served.
absl::Status Rejection(ShmMedium& near, ShmMedium& far) {
  auto refused = near.Connect(far.address());
  if (!refused.ok()) return refused.status();
  auto accepted = far.Accept();
  EXPECT_TRUE(accepted.ok() && *accepted == nullptr);
  while (true) {
    const auto established = (*refused)->Establish();
    if (!established.ok()) return established.status();
    if (*established || !AwaitEvent(**refused)) return absl::OkStatus();
  }
}

TEST(ShmMedium, WhoIsNotConnectedToTakesNoSharedMemory) {
  const auto near = *ShmMedium::Open(
      {.device = &Host(), .buffer_bytes = 0, .max_payload_bytes = kMaxPayloadBytes});
  EXPECT_TRUE(near->memory().empty());
  const auto far = NewMedium();
  EXPECT_TRUE(ConnectPair(*near, *far).accepted);
  const absl::Status status = Rejection(*far, *near);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("no shared memory left"));
}

TEST(ShmMedium, WithoutAFreeSlotThePeerIsToldSo) {
  const auto far = NewMedium();
  const auto near = NewMedium();
  std::array<ChannelPair, kSlots> pairs = {ConnectPair(*near, *far), ConnectPair(*near, *far)};
  const absl::Status status = Rejection(*near, *far);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("no shared memory left"));
  EXPECT_EQ(far->refused_for_room(), 1u);
  pairs[0] = {};
  EXPECT_TRUE(ConnectPair(*near, *far).accepted) << "the slot was not given back";
}

// A peer that is stopped in the middle of a copy may go on writing whenever it is continued.
TEST(ShmMedium, ASlotIsNotGivenOutWhileItsLastPeerHasIt) {
  const auto far = NewMedium();
  const auto near = NewMedium();
  std::array<ChannelPair, kSlots> pairs = {ConnectPair(*near, *far), ConnectPair(*near, *far)};
  pairs[0].accepted.reset();
  EXPECT_EQ(Rejection(*near, *far).code(), absl::StatusCode::kUnavailable);
  PatternFlow hung(*pairs[0].connected, {.send_seed = 1, .send_bytes = 100});
  EXPECT_EQ(hung.ReadOnce(), 0u);
  ASSERT_TRUE(AwaitEvent(*pairs[0].connected));
  EXPECT_EQ(hung.ReadOnce(), 0u);
  EXPECT_EQ(hung.failure().code(), absl::StatusCode::kUnavailable) << "it hears of the end";
  pairs[0].connected.reset();
  const ChannelPair again = ConnectPair(*near, *far);
  ASSERT_TRUE(again.accepted);
  PatternFlow reader(*again.accepted, {.receive_seed = 2, .receive_bytes = 100});
  EXPECT_EQ(reader.ReadOnce(), 0u) << "bytes of the connection before";
  EXPECT_EQ(reader.failure(), absl::OkStatus());
}

bool AwaitInput(int fd) {
  pollfd watched = {.fd = fd, .events = POLLIN};
  return poll(&watched, 1, 60'000) > 0;
}

// The life of a process of another user; its exit status says what went wrong.
int ConnectAsNobody(const std::string& address) {
  if (setresuid(65534, 65534, 65534) != 0) return 1;
  // The connecting side looks who listens, too: nobody sends KV to another user's process.
  const auto own = NewMedium();
  if (own->Connect(address).status().code() != absl::StatusCode::kFailedPrecondition) return 2;
  const auto socket = ConnectUnix(ParseHostAddress(address)->name);
  std::array<std::byte, kShmSetupBytes> setup;
  if (!socket.ok() || !AwaitInput(socket->get())) return 3;
  const auto received = ReceiveWithDescriptors(socket->get(), setup);
  if (!received.ok() || !received->descriptors.empty()) return 4;
  return ParseShmSetup(setup)->code == absl::StatusCode::kPermissionDenied ? 0 : 5;
}

TEST(ShmMedium, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto far = NewMedium();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(ConnectAsNobody(far->address()));
  for (int refused = 0; refused < 2; ++refused) {
    ASSERT_TRUE(AwaitInput(far->listener_fd()));
    EXPECT_EQ(far->Accept().status().code(), absl::StatusCode::kPermissionDenied);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A listener that greets as the test says.
class FalseAcceptor {
 public:
  FalseAcceptor() : listener_(*ListenUnix(name_)) {}

  // How the establishing ends on the connecting side.
  absl::Status Greet(std::span<const std::byte> bytes, std::span<const int> descriptors) {
    UniqueFd connected = *ConnectUnix(name_);
    UniqueFd watch = *NewWatch(connected.get());
    ConnectedShmChannel channel(std::move(connected), std::move(watch), Host(), copier_);
    const UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(SendWithDescriptors(socket.get(), bytes, descriptors), absl::OkStatus());
    return channel.Establish().status();
  }
  // With doorbells that are in order.
  absl::Status GreetWith(std::span<const std::byte> bytes, const UniqueFd& memory) {
    const UniqueFd bells[2] = {*NewDoorbell(), *NewDoorbell()};
    return Greet(bytes, std::array{memory.get(), bells[0].get(), bells[1].get()});
  }

 private:
  const std::string name_ = NewHostAddress()->name;
  const UniqueFd listener_;
  AreaCopier copier_ = NewCopier();
};

UniqueFd Memory(size_t bytes, int seals) {
  UniqueFd memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(memory.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  return memory;
}

TEST(ShmMedium, MemoryThatIsNotWhatThePeerSaysIsNotMapped) {
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const auto setup = EncodeShmSetup({.layout = kLayout});
  FalseAcceptor peer;
  EXPECT_EQ(peer.GreetWith(setup, Memory(kLayout.slot_bytes(), kSealed)), absl::OkStatus());
  const absl::Status none = peer.Greet(setup, {});
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(none), HasSubstr("0 descriptors"));
  const absl::Status small = peer.GreetWith(setup, Memory(kPageBytes, kSealed));
  EXPECT_EQ(small.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(small), HasSubstr("4096"));
  const absl::Status open = peer.GreetWith(setup, Memory(kLayout.slot_bytes(), F_SEAL_GROW));
  EXPECT_EQ(open.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(open), HasSubstr("not sealed"));
}

TEST(ShmMedium, AGreetingThatIsNoneIsRefused) {
  FalseAcceptor peer;
  std::array<std::byte, kShmSetupBytes> nonsense;
  nonsense.fill(std::byte{0x5A});
  EXPECT_EQ(peer.Greet(nonsense, {}).code(), absl::StatusCode::kFailedPrecondition);
  const auto stranger = EncodeShmSetup({.code = absl::StatusCode::kPermissionDenied});
  EXPECT_EQ(peer.Greet(stranger, {}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ShmMedium, APeerWhoseAreaIsTooSmallIsLeftForAnotherWay) {
  FalseAcceptor peer;
  SlotLayout small = kLayout;
  small.area_bytes = 2 * kMaxPayloadBytes - kPageBytes;
  const absl::Status status =
      peer.GreetWith(EncodeShmSetup({.layout = small}),
                     Memory(small.slot_bytes(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr(std::to_string(small.area_bytes / 2)));
  EXPECT_THAT(Message(status), HasSubstr(std::to_string(kMaxPayloadBytes)));
}

// A Read takes all wake-ups from the doorbell, that which says that there is room as well.
TEST(ShmMedium, AReadLeavesTheWriterAnEvent) {
  const auto far = NewMedium();
  const auto near = NewMedium();
  const ChannelPair pair = ConnectPair(*near, *far);
  ASSERT_TRUE(pair.accepted);
  PatternFlow writer(*pair.connected, {.send_seed = 9, .send_bytes = 1 << 20});
  PatternFlow reader(*pair.accepted, {.receive_seed = 9, .receive_bytes = 1 << 20});
  EXPECT_EQ(writer.ReadOnce(), 0u);
  while (writer.WriteOnce() > 0) {
  }
  EXPECT_FALSE(HasEventAtOnce(*pair.connected));
  while (reader.ReadOnce() > 0) {
  }
  EXPECT_TRUE(HasEventAtOnce(*pair.connected));
  EXPECT_EQ(writer.ReadOnce(), 0u);
  EXPECT_TRUE(HasEventAtOnce(*pair.connected)) << "nobody tells the writer any more";
  EXPECT_GT(writer.WriteOnce(), 0u);
  EXPECT_EQ(writer.ReadOnce(), 0u);
  EXPECT_FALSE(HasEventAtOnce(*pair.connected));
}

// Each wake-up costs this side a call: a peer may not send more than it was asked for.
TEST(ShmMedium, WakeUpsThatNobodyAskedForEndTheConnection) {
  const auto far = NewMedium();
  const UniqueFd socket = *ConnectUnix(ParseHostAddress(far->address())->name);
  const auto channel = AwaitConnection(*far);
  ASSERT_TRUE(channel);
  std::array<std::byte, kShmSetupBytes> setup;
  const auto received = ReceiveWithDescriptors(socket.get(), setup);
  ASSERT_TRUE(received.ok());
  PatternFlow reader(*channel, {.receive_bytes = 100});
  EXPECT_EQ(reader.ReadOnce(), 0u);
  const uint64_t rings = 2;
  ASSERT_EQ(write(received->descriptors[1].get(), &rings, sizeof(rings)), 8);
  EXPECT_TRUE(HasEventAtOnce(*channel));
  reader.ReadOnce();
  EXPECT_EQ(reader.failure().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ShmMedium, BytesBehindTheGreetingEndTheConnection) {
  const auto far = NewMedium();
  const UniqueFd socket = *ConnectUnix(ParseHostAddress(far->address())->name);
  const auto channel = AwaitConnection(*far);
  ASSERT_TRUE(channel);
  PatternFlow reader(*channel, {.receive_bytes = 100});
  EXPECT_EQ(reader.ReadOnce(), 0u);
  ASSERT_EQ(send(socket.get(), "x", 1, 0), 1);
  EXPECT_TRUE(HasEventAtOnce(*channel));
  reader.ReadOnce();
  EXPECT_EQ(reader.failure().code(), absl::StatusCode::kFailedPrecondition);
}

// A doorbell that is something else must not make this side wait for it.
TEST(ShmMedium, ADoorbellThatIsNoneEndsTheConnection) {
  const auto setup = EncodeShmSetup({.layout = kLayout});
  const std::string name = NewHostAddress()->name;
  const UniqueFd listener = *ListenUnix(name);
  UniqueFd connected = *ConnectUnix(name);
  UniqueFd watch = *NewWatch(connected.get());
  AreaCopier copier = NewCopier();
  ConnectedShmChannel channel(std::move(connected), std::move(watch), Host(), copier);
  const UniqueFd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const UniqueFd ends[2] = {UniqueFd(pipe_ends[0]), UniqueFd(pipe_ends[1])};
  const UniqueFd memory = Memory(kLayout.slot_bytes(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  ASSERT_EQ(SendWithDescriptors(socket.get(), setup,
                                std::array{memory.get(), ends[1].get(), ends[0].get()}),
            absl::OkStatus());
  ASSERT_TRUE(*channel.Establish());
  PatternFlow reader(channel, {.receive_bytes = 100});
  EXPECT_EQ(reader.ReadOnce(), 0u);
  EXPECT_EQ(reader.ReadOnce(), 0u) << "an empty pipe is waited for";
  ASSERT_EQ(write(ends[1].get(), "abc", 3), 3);
  reader.ReadOnce();
  EXPECT_EQ(reader.failure().code(), absl::StatusCode::kFailedPrecondition);
}

// The peer has the memory in its hands and writes an index that cannot be.
TEST(ShmMedium, APeerWithAnImpossibleIndexLosesItsConnection) {
  for (const bool forward : {true, false}) {
    const auto far = NewMedium();
    const UniqueFd socket = *ConnectUnix(ParseHostAddress(far->address())->name);
    const auto channel = AwaitConnection(*far);
    ASSERT_TRUE(channel);
    std::array<std::byte, kShmSetupBytes> setup;
    const auto received = ReceiveWithDescriptors(socket.get(), setup);
    ASSERT_TRUE(received.ok());
    const auto mapping = MapPeerMemory(received->descriptors[0], kLayout.slot_bytes());
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    const SlotParts parts = PartsOf(kLayout, mapping->bytes());
    if (forward) {
      parts.control->forward.tail = kLayout.forward_bytes + 1;
    } else {
      parts.control->back.head = uint64_t{1} << 40;
    }
    PatternFlow flow(*channel, {.send_bytes = 1 << 20, .receive_bytes = 100});
    flow.Advance();
    EXPECT_EQ(flow.failure().code(), absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace tandem
