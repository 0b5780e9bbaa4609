#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "transfer/media/tcp/socket.h"
#include "transfer/wire/frame.h"

namespace tandem {

inline std::vector<std::byte> HeaderBytes(const FrameHeader& header) {
  const auto bytes = EncodeFrameHeader(header);
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

inline sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A blocking socket that says what the test tells it to.
class RawPeer {
 public:
  using Bytes = std::vector<std::byte>;

  explicit RawPeer(UniqueFd socket) : socket_(std::move(socket)) {}

  static RawPeer ConnectTo(const std::string& address) {
    UniqueFd socket_fd(socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in name =
        Loopback(static_cast<uint16_t>(std::stoi(ParseHostPort(address)->port)));
    EXPECT_EQ(connect(socket_fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    return RawPeer(std::move(socket_fd));
  }

  void Send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return;  // the other side may close at any byte
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
  }

  // Exactly `size` bytes, fewer when the other side closes first.
  Bytes Receive(size_t size) {
    Bytes bytes(size);
    size_t filled = 0;
    while (filled < size) {
      const ssize_t count = recv(socket_.get(), bytes.data() + filled, size - filled, 0);
      if (count <= 0) break;
      filled += static_cast<size_t>(count);
    }
    bytes.resize(filled);
    return bytes;
  }

  // As the sender of one connection: says hello, so that the other side answers from here on.
  RawPeer& Greet() {
    static uint64_t groups = 0;
    Send(HeaderBytes({.type = FrameType::kHello, .stream = ++groups, .block = 1}));
    return *this;
  }
  // As a receiver: expects the hello and allows whatever is to come.
  RawPeer& GreetBack() {
    EXPECT_EQ(ReceiveHeader().type, FrameType::kHello);
    Send(HeaderBytes({.type = FrameType::kCredit, .frames = uint64_t{1} << 40}));
    return *this;
  }

  // The next one that is no credit.
  FrameHeader ReceiveHeader() {
    while (true) {
      const FrameHeader header = ReceiveAnyHeader();
      if (header.type != FrameType::kCredit) return header;
    }
  }

  FrameHeader ReceiveAnyHeader() {
    const Bytes bytes = Receive(kFrameHeaderBytes);
    if (bytes.size() != kFrameHeaderBytes) {
      ADD_FAILURE() << "the connection was closed instead of an answer";
      return {};
    }
    const auto header = ParseFrameHeader(std::span<const std::byte, kFrameHeaderBytes>(bytes));
    EXPECT_TRUE(header.ok()) << header.status();
    return *header;
  }

  // Waits for the other side to close, whatever it says before.
  bool IsClosed() {
    while (!Receive(1).empty()) {
    }
    return true;
  }
  void Close() { socket_ = UniqueFd(); }

 private:
  UniqueFd socket_;
};

// Where a plain peer can be connected to.
class RawListener {
 public:
  explicit RawListener(int backlog = 8) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const sockaddr_in name = Loopback(0);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    EXPECT_EQ(listen(socket_.get(), backlog), 0);
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", LocalPort(socket_)); }
  RawPeer Accept() { return RawPeer(UniqueFd(accept(socket_.get(), nullptr, nullptr))); }

 private:
  UniqueFd socket_;
};

}  // namespace tandem
