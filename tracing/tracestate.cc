#include "tracing/tracestate.h"

#include <algorithm>
#include <vector>

#include "fmt/format.h"

namespace tandem {
namespace {

constexpr size_t kMaxMembers = 32;
constexpr size_t kLongMemberBytes = 128;

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// `max_bytes`: of the part. `may_begin_with_digit`: parts other than the name of a system may.
bool IsKeyPart(std::string_view part, size_t max_bytes, bool may_begin_with_digit) {
  if (part.empty() || part.size() > max_bytes) return false;
  if (!IsLower(part.front()) && !(may_begin_with_digit && IsDigit(part.front()))) return false;
  return std::ranges::all_of(part, [](char c) {
    return IsLower(c) || IsDigit(c) || c == '_' || c == '-' || c == '*' || c == '/';
  });
}

// A simple key, or a tenant and its system with an "@" between them.
bool IsKey(std::string_view key) {
  const size_t at = key.find('@');
  if (at == std::string_view::npos) return IsKeyPart(key, 256, true);
  return IsKeyPart(key.substr(0, at), 241, true) && IsKeyPart(key.substr(at + 1), 14, false);
}

bool IsValue(std::string_view value) {
  if (value.empty() || value.size() > 256 || value.back() == ' ') return false;
  return std::ranges::all_of(value,
                             [](char c) { return c >= ' ' && c <= '~' && c != ',' && c != '='; });
}

std::string_view WithoutSpace(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

struct Members {
  std::vector<std::string_view> whole;  // "key=value"
  std::vector<std::string_view> keys;

  // False when the member is malformed, its key is there already or there are too many.
  bool Add(std::string_view member) {
    const size_t equals = member.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = member.substr(0, equals);
    if (!IsKey(key) || !IsValue(member.substr(equals + 1))) return false;
    if (whole.size() == kMaxMembers || std::ranges::find(keys, key) != keys.end()) return false;
    whole.push_back(member);
    keys.push_back(key);
    return true;
  }
};

bool AddHeader(std::string_view header, Members& members) {
  while (true) {
    const size_t comma = header.find(',');
    const std::string_view member = WithoutSpace(header.substr(0, comma));
    // An empty member is allowed and says nothing.
    if (!member.empty() && !members.Add(member)) return false;
    if (comma == std::string_view::npos) return true;
    header.remove_prefix(comma + 1);
  }
}

size_t JoinedBytes(const std::vector<std::string_view>& members) {
  size_t bytes = members.empty() ? 0 : members.size() - 1;
  for (const std::string_view member : members) bytes += member.size();
  return bytes;
}

}  // namespace

std::optional<std::string> JoinTracestates(std::span<const std::string_view> headers) {
  Members members;
  for (const std::string_view header : headers) {
    if (!AddHeader(header, members)) return std::nullopt;
  }
  std::vector<std::string_view>& kept = members.whole;
  if (JoinedBytes(kept) > kMaxTracestateBytes) {
    std::erase_if(kept, [](std::string_view member) { return member.size() > kLongMemberBytes; });
  }
  while (JoinedBytes(kept) > kMaxTracestateBytes) kept.pop_back();
  return fmt::format("{}", fmt::join(kept, ","));
}

}  // namespace tandem
