#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace tandem {

// An answer as it came, for tests.
struct HttpReply {
  int status = 0;  // 0: no answer came
  std::string head;
  std::string body;       // of a chunked answer without its chunks' headers
  bool is_whole = false;  // its end was marked, not only the connection's end
  std::string_view Header(std::string_view name) const;  // empty without it
};

// A client's end of one connection, which sends bytes as they are. Every wait fails the test after
// a minute.
class HttpPeer {
 public:
  // To this port of 127.0.0.1. `receive_buffer_bytes`: 0 for the system's.
  explicit HttpPeer(uint16_t port, int receive_buffer_bytes = 0);

  // False when the server has closed the connection.
  bool Send(std::string_view bytes);
  // Sends GET for the path and reads the answer.
  // `headers`: lines that each end with "\r\n".
  HttpReply Get(std::string_view path, std::string_view headers = "");
  HttpReply Post(std::string_view path, std::string_view body, std::string_view headers = "");
  // Reads one whole answer. `request` says which method it answers: HEAD has no body.
  HttpReply Read(std::string_view method = "GET");
  // Reads until what came, after what was read before, contains `text`; returns it up to there.
  // Shorter when the connection ends before.
  std::string ReadThrough(std::string_view text);
  // Whether the server closes the connection; throws away what comes before.
  bool AwaitEnd();
  void Close() { socket_ = UniqueFd(); }
  // Closes it so that the server's system is told at once and nothing more is delivered.
  void Reset();
  // Sends nothing any more, but still reads.
  void EndWriting();

 private:
  // False at the end of the connection.
  bool Fill();
  std::string Take(size_t bytes);
  std::string ReadChunks(bool& is_whole);

  UniqueFd socket_;
  std::string received_;
};

// One request on a connection of its own.
HttpReply HttpGet(uint16_t port, std::string_view path);

}  // namespace tandem
