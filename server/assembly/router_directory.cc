#include "server/assembly/router_directory.h"

#include <algorithm>
#include <utility>

#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr std::string_view kDnsPrefix = "dns:";
constexpr std::string_view kHostCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:";

}  // namespace

absl::StatusOr<RouterName> ParseRouterName(std::string_view text) {
  RouterName name;
  name.text = text;
  name.follows_dns = text.starts_with(kDnsPrefix);
  if (name.follows_dns) text.remove_prefix(kDnsPrefix.size());
  absl::StatusOr<HostPort> place = ParseHostPort(text);
  if (!place.ok() && !name.follows_dns) return place.status();
  if (!place.ok()) return InvalidArgument("\"{}\": must be dns:NAME:PORT", name.text);
  if (name.follows_dns && place->host.find_first_not_of(kHostCharacters) != std::string::npos) {
    return InvalidArgument("\"{}\": \"{}\" is no host name: give dns:NAME:PORT, without slashes",
                           name.text, place->host);
  }
  name.host = std::move(place->host);
  name.port = static_cast<uint16_t>(std::stoi(place->port));
  return name;
}

RouterDirectory::RouterDirectory(const std::vector<RouterName>& names, HostResolver& resolver)
    : resolver_(resolver) {
  for (const RouterName& name : names) {
    Entry entry = {.name = name};
    // A host that does not follow DNS is left to gRPC, which looks it up when it connects.
    if (!name.follows_dns) entry.addresses = {name.text};
    entries_.push_back(std::move(entry));
  }
}

bool RouterDirectory::follows_dns() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.name.follows_dns; });
}

void RouterDirectory::LookUp() {
  for (Entry& entry : entries_) {
    if (entry.name.follows_dns) LookUp(entry);
  }
}

void RouterDirectory::LookUp(Entry& entry) {
  absl::StatusOr<std::vector<std::string>> answer = resolver_.Resolve(entry.name.host);
  const bool failed = !answer.ok() || answer->empty();
  if (failed && !std::exchange(entry.failed, true)) {
    LogWarn("router={} cannot be looked up, known_addresses={} are kept status=\"{}\"",
            entry.name.text, entry.addresses.size(),
            answer.ok() ? "no address" : answer.status().ToString());
  }
  if (failed) return;
  if (std::exchange(entry.failed, false)) LogInfo("router={} is found again", entry.name.text);
  std::sort(answer->begin(), answer->end());
  answer->erase(std::unique(answer->begin(), answer->end()), answer->end());
  if (answer->size() > kMaxRouters) {
    if (entry.addresses.size() < kMaxRouters) {  // only warn when the limit is newly exceeded
      LogWarn("router={} has addresses={}, of which only the first {} are used", entry.name.text,
              answer->size(), kMaxRouters);
    }
    answer->resize(kMaxRouters);
  }
  entry.addresses.clear();
  for (const std::string& address : *answer) {
    entry.addresses.push_back(HostPortText(address, entry.name.port));
  }
}

std::vector<std::vector<std::string>> RouterDirectory::addresses() const {
  std::vector<std::vector<std::string>> all;
  for (const Entry& entry : entries_) all.push_back(entry.addresses);
  return all;
}

}  // namespace tandem
