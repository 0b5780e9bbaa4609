#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

// Bytes of HTTP/2 that no client library would send.
namespace tandem::http2 {

enum class Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kGoAway = 7,
  kContinuation = 9
};
inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndHeaders = 4;
inline constexpr size_t kFrameHead = 9;
inline constexpr size_t kMostPayload = 16 << 10;  // until the server has allowed more

inline std::string Frame(Type type, uint8_t flags, uint8_t stream, std::string_view payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  frame += std::string(3, '\0') + static_cast<char>(stream);
  return frame.append(payload);
}

// What a client says first.
inline std::string Opening() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(Type::kSettings, 0, 0, "");
}

// A header of HPACK, literal and not indexed.
inline std::string Header(std::string_view name, std::string_view value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + std::string(name) +
         static_cast<char>(value.size()) + std::string(value);
}

inline std::string CallHeaders(const std::string& method) {
  return Header(":method", "POST") + Header(":scheme", "http") + Header(":path", method) +
         Header(":authority", "h") + Header("te", "trailers") +
         Header("content-type", "application/grpc");
}

// A call on the first stream with headers of at least so many bytes, and a message without a field.
inline std::string HeadersOfSize(const std::string& method, size_t bytes) {
  std::string headers = CallHeaders(method);
  while (headers.size() < bytes) headers += Header("x-more", std::string(100, 'x'));
  std::string frames;
  for (size_t at = 0; at < headers.size(); at += kMostPayload) {
    const bool is_last = at + kMostPayload >= headers.size();
    frames += Frame(at == 0 ? Type::kHeaders : Type::kContinuation, is_last ? kEndHeaders : 0, 1,
                    std::string_view(headers).substr(at, kMostPayload));
  }
  return frames + Frame(Type::kData, kEndStream, 1, std::string(5, '\0'));
}

// A call on the first stream whose message claims that length, and ends after a few bytes.
inline std::string MessageOfLength(const std::string& method, uint32_t length) {
  std::string message(1, '\0');  // not compressed
  for (const int shift : {24, 16, 8, 0}) message += static_cast<char>(length >> shift);
  return Frame(Type::kHeaders, kEndHeaders, 1, CallHeaders(method)) +
         Frame(Type::kData, kEndStream, 1, message + std::string(100, 'x'));
}

// Whether the server has ended the first stream, or the whole connection, in what it sent.
inline bool EndsFirstStream(std::string_view bytes) {
  const auto byte = [&bytes](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  for (size_t at = 0; at + kFrameHead <= bytes.size();) {
    const size_t size = size_t{byte(at)} << 16 | size_t{byte(at + 1)} << 8 | byte(at + 2);
    const auto type = static_cast<Type>(byte(at + 3));
    const bool is_first = byte(at + 8) == 1;
    if (type == Type::kGoAway || (type == Type::kReset && is_first)) return true;
    if (type == Type::kHeaders && is_first && (byte(at + 4) & kEndStream) != 0) return true;
    at += kFrameHead + size;
  }
  return false;
}

// Whether it ended a call with this status of one digit, which gRPC writes as it is.
inline bool EndsWithStatus(std::string_view bytes, char digit) {
  return bytes.find(std::string("grpc-status\1") + digit) != std::string_view::npos;
}

}  // namespace tandem::http2
