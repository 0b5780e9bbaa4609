#include "server/access/access_control.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/match.h"
#include "base/log.h"
#include "base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<AccessControl>> AccessControl::Open(std::string path,
                                                                   OnTenants on_tenants) {
  auto access =
      std::unique_ptr<AccessControl>(new AccessControl(std::move(path), std::move(on_tenants)));
  access->stamp_ = StampOf(access->path_);
  RETURN_IF_ERROR(access->Load());
  return access;
}

AccessControl::FileStamp AccessControl::StampOf(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return {};
  return {.inode = static_cast<int64_t>(found.st_ino),
          .bytes = found.st_size,
          .changed_seconds = found.st_mtim.tv_sec,
          .changed_nanoseconds = found.st_mtim.tv_nsec};
}

absl::Status AccessControl::Load() {
  ASSIGN_OR_RETURN(AccessFile read, AccessFile::Load(path_));
  const auto file = std::make_shared<const AccessFile>(std::move(read));
  if (!file->keys().empty()) has_had_keys_ = true;
  {
    absl::MutexLock lock(&mutex_);
    file_ = file;
  }
  on_tenants_(file->tenants());
  LogInfo("access keys={} tenants={} file={}", file->keys().size(), file->tenants().tenants.size(),
          path_);
  return absl::OkStatus();
}

std::shared_ptr<const AccessFile> AccessControl::file() const {
  absl::MutexLock lock(&mutex_);
  return file_;
}

void AccessControl::ReloadIfChanged() {
  const FileStamp now = StampOf(path_);
  if (now == stamp_) return;
  stamp_ = now;
  if (const absl::Status status = Load(); !status.ok()) {
    ++reloads_refused_;
    LogWarn("the earlier keys and limits stay, because the changed access file cannot be taken: {}",
            status.ToString());
    return;
  }
  ++reloads_;
}

absl::StatusOr<std::optional<Caller>> AccessControl::Check(std::optional<std::string_view> secret,
                                                           Scope needed) {
  const std::shared_ptr<const AccessFile> file = this->file();
  if (!has_had_keys_) return std::nullopt;
  if (!secret) {
    Count(Refusal::kMissing);
    return absl::UnauthenticatedError(
        "an API key is missing: send it as \"authorization: Bearer KEY\" (HTTP also takes "
        "x-api-key; tandem's own commands take TANDEM_API_KEY)");
  }
  const ApiKey* const key = file->Find(*secret);
  if (key == nullptr) {
    Count(Refusal::kUnknown);
    return absl::UnauthenticatedError("the API key is not known here, or was removed");
  }
  if (!key->Has(needed)) {
    Count(Refusal::kScope);
    return absl::PermissionDeniedError(fmt::format("the API key {} lacks the scope {}", key->id,
                                                   kScopeNames[static_cast<size_t>(needed)]));
  }
  return Caller{.key_id = key->id, .tenant = key->tenant, .is_admin = key->Has(Scope::kAdmin)};
}

v1::AccessUse AccessControl::Use() const {
  const auto refused = [this](Refusal refusal) {
    return refused_[static_cast<size_t>(refusal)].load();
  };
  v1::AccessUse use;
  use.set_keys(static_cast<int32_t>(file()->keys().size()));
  use.set_refused_missing(refused(Refusal::kMissing));
  use.set_refused_unknown(refused(Refusal::kUnknown));
  use.set_refused_scope(refused(Refusal::kScope));
  use.set_reloads(reloads_);
  use.set_reloads_refused(reloads_refused_);
  return use;
}

std::optional<std::string_view> BearerSecret(std::string_view authorization) {
  constexpr absl::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase({authorization.data(), authorization.size()}, kScheme)) {
    return std::nullopt;
  }
  authorization.remove_prefix(kScheme.size());
  while (!authorization.empty() && authorization.front() == ' ') authorization.remove_prefix(1);
  if (authorization.empty()) return std::nullopt;
  return authorization;
}

}  // namespace tandem
