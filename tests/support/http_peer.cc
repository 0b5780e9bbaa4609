#include "tests/support/http_peer.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "absl/strings/match.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr int kTimeoutMilliseconds = 60'000;

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string_view HttpReply::Header(std::string_view name) const {
  const std::string_view text = head;
  for (size_t at = text.find("\r\n"); at < text.size(); at = text.find("\r\n", at + 2)) {
    const std::string_view line = text.substr(at + 2, text.find("\r\n", at + 2) - at - 2);
    const size_t colon = line.find(": ");
    if (colon != std::string_view::npos &&
        absl::EqualsIgnoreCase(Absl(line.substr(0, colon)), Absl(name))) {
      return line.substr(colon + 2);
    }
  }
  return {};
}

HttpPeer::HttpPeer(uint16_t port, int receive_buffer_bytes)
    : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes > 0) {
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
               sizeof(receive_buffer_bytes));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
      << ErrnoMessage(errno);
}

bool HttpPeer::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

HttpReply HttpPeer::Get(std::string_view path, std::string_view headers) {
  Send(fmt::format("GET {} HTTP/1.1\r\nHost: test\r\n{}\r\n", path, headers));
  return Read();
}

HttpReply HttpPeer::Post(std::string_view path, std::string_view body, std::string_view headers) {
  Send(fmt::format("POST {} HTTP/1.1\r\nHost: test\r\n{}Content-Length: {}\r\n\r\n{}", path,
                   headers, body.size(), body));
  return Read();
}

HttpReply HttpPeer::Read(std::string_view method) {
  HttpReply reply;
  reply.head = ReadThrough("\r\n\r\n");
  constexpr std::string_view kVersion = "HTTP/1.1 ";
  if (!reply.head.starts_with(kVersion) || !reply.head.ends_with("\r\n\r\n")) return reply;
  std::from_chars(reply.head.data() + kVersion.size(), reply.head.data() + kVersion.size() + 3,
                  reply.status);
  const std::string_view length = reply.Header("Content-Length");
  if (method == "HEAD" || reply.status == 204 || reply.status == 304 || reply.status == 100) {
    reply.is_whole = true;
  } else if (!length.empty()) {
    const size_t size = std::stoul(std::string(length));
    while (received_.size() < size && Fill()) {
    }
    reply.is_whole = received_.size() >= size;
    reply.body = Take(size);
  } else if (reply.Header("Transfer-Encoding") == "chunked") {
    reply.body = ReadChunks(reply.is_whole);
  } else {
    while (Fill()) {
    }
    reply.body = Take(received_.size());
  }
  return reply;
}

std::string HttpPeer::ReadChunks(bool& is_whole) {
  std::string body;
  while (true) {
    const std::string line = ReadThrough("\r\n");
    size_t size = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), size, 16);
    if (parsed.ptr == line.data() || !line.ends_with("\r\n")) return body;
    while (received_.size() < size + 2 && Fill()) {
    }
    if (received_.size() < size + 2) return body;
    body += Take(size);
    EXPECT_EQ(Take(2), "\r\n");
    if (size == 0) {
      is_whole = true;
      return body;
    }
  }
}

std::string HttpPeer::ReadThrough(std::string_view text) {
  size_t at = 0;
  while ((at = received_.find(text)) == std::string::npos) {
    if (!Fill()) return Take(received_.size());
  }
  return Take(at + text.size());
}

bool HttpPeer::AwaitEnd() {
  while (Fill()) received_.clear();
  return true;
}

void HttpPeer::Reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close();
}

void HttpPeer::EndWriting() { shutdown(socket_.get(), SHUT_WR); }

bool HttpPeer::Fill() {
  pollfd readable = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
  if (poll(&readable, 1, kTimeoutMilliseconds) <= 0) {
    ADD_FAILURE() << "the server has neither sent anything nor closed the connection";
    return false;
  }
  char bytes[16 << 10];
  const ssize_t count = recv(socket_.get(), bytes, sizeof(bytes), 0);
  if (count <= 0) return false;
  received_.append(bytes, static_cast<size_t>(count));
  return true;
}

std::string HttpPeer::Take(size_t bytes) {
  bytes = std::min(bytes, received_.size());
  std::string taken = received_.substr(0, bytes);
  received_.erase(0, bytes);
  return taken;
}

HttpReply HttpGet(uint16_t port, std::string_view path) { return HttpPeer(port).Get(path); }

}  // namespace tandem
