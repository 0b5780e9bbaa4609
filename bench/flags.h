#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem {

// The flags of a bench, pairs of "--name VALUE". What is named must outlive the parsing.
class FlagParser {
 public:
  using Setter = std::function<absl::Status(std::string_view value)>;

  void Add(std::string name, Setter set) { setters_[std::move(name)] = std::move(set); }

  void Text(const std::string& name, std::string& text) {
    Add(name, [&text](std::string_view value) {
      text = std::string(value);
      return absl::OkStatus();
    });
  }

  void Count(const std::string& name, int32_t& count, int32_t least = 1) {
    Add(name, [name, &count, least](std::string_view value) {
      return Number(name, value, least, count);
    });
  }

  // Numbers with commas between.
  void Counts(const std::string& name, std::vector<int32_t>& counts, int32_t least) {
    Add(name, [name, &counts, least](std::string_view value) -> absl::Status {
      counts.clear();
      while (!value.empty()) {
        const std::string_view word = value.substr(0, value.find(','));
        RETURN_IF_ERROR(Number(name, word, least, counts.emplace_back()));
        value.remove_prefix(std::min(value.size(), word.size() + 1));
      }
      return absl::OkStatus();
    });
  }

  // Above 0.
  void Real(const std::string& name, double& real) {
    Add(name, [name, &real](std::string_view value) -> absl::Status {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), real);
      if (error == std::errc() && end == value.data() + value.size() && real > 0) {
        return absl::OkStatus();
      }
      return InvalidArgument("{} is {}: it must be a number above 0", name, value);
    });
  }

  // INVALID_ARGUMENT for a flag that is unknown, or without a value that it takes.
  absl::Status Parse(int argc, char** argv) const {
    for (int i = 1; i < argc; i += 2) {
      const auto found = setters_.find(argv[i]);
      if (found == setters_.end()) {
        return InvalidArgument("{} is unknown: the flags are {}", argv[i], Names());
      }
      if (i + 1 == argc) return InvalidArgument("{} needs a value", argv[i]);
      RETURN_IF_ERROR(found->second(argv[i + 1]));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Number(std::string_view name, std::string_view text, int32_t least,
                             int32_t& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && number >= least) {
      return absl::OkStatus();
    }
    return InvalidArgument("{} is {}: it must be a number, {} or more", name, text, least);
  }

  std::string Names() const {
    std::string names;
    for (const auto& [name, _] : setters_) names += (names.empty() ? "" : ", ") + name;
    return names;
  }

  std::map<std::string, Setter, std::less<>> setters_;
};

// The exit status of main. Prints an error to stderr.
inline int ExitCode(std::string_view program, const absl::Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "{}: {}\n", program, status.ToString());
  return 1;
}

}  // namespace tandem
