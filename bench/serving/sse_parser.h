#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tandem::loadgen {

// Takes a stream of server-sent events apart (https://html.spec.whatwg.org, section 9.2.6). Only
// the data of events is kept: names, ids, retry times and comments are skipped. Not thread-safe.
class SseParser {
 public:
  // `on_data` is called with the data of each event that has any, its lines joined by line feeds.
  explicit SseParser(std::function<void(std::string_view data)> on_data);

  // The next bytes of the stream, cut anywhere.
  void Feed(std::string_view bytes);

 private:
  void EndLine();

  const std::function<void(std::string_view)> on_data_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // a line feed that follows belongs to the carriage return
};

}  // namespace tandem::loadgen
