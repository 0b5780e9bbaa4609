#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/access/api_keys.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {

// The identity of a caller, which follows from the API key that came with the call.
struct Caller {
  std::string key_id;
  std::string tenant;
  bool is_admin = false;  // whether the key has the scope admin
};

// Decides by API keys what callers may do. The keys come from an access file (api_keys.h), whose
// changes take effect while the process runs; a file that cannot be read or parsed changes nothing.
// A file without keys lets everybody in, so that it may limit tenants alone; once the process has
// had keys, such a file lets nobody in.
// Thread-safe.
class AccessControl {
 public:
  // Receives the limits of tenants, at once and after each change of the file, on the thread that
  // calls Open or ReloadIfChanged.
  using OnTenants = std::function<void(const TenantPolicy&)>;
  // Loads the access file at `path`. Errors are those of AccessFile::Load.
  static absl::StatusOr<std::unique_ptr<AccessControl>> Open(std::string path,
                                                             OnTenants on_tenants);

  // The caller whose API key is `secret`, which is nothing where the call came without one; no
  // caller while no keys are in use. UNAUTHENTICATED where the secret is missing or unknown,
  // PERMISSION_DENIED where its key lacks the scope `needed`; the message never repeats the secret.
  absl::StatusOr<std::optional<Caller>> Check(std::optional<std::string_view> secret, Scope needed);

  // Loads the file again if it has changed. To be called every few seconds.
  void ReloadIfChanged();

  v1::AccessUse Use() const;

 private:
  // Distinguishes one state of a file from another.
  struct FileStamp {
    int64_t inode = 0;
    int64_t bytes = -1;
    int64_t changed_seconds = 0;
    int64_t changed_nanoseconds = 0;
    bool operator==(const FileStamp&) const = default;
  };
  enum class Refusal : uint8_t { kMissing, kUnknown, kScope };

  AccessControl(std::string path, OnTenants on_tenants)
      : path_(std::move(path)), on_tenants_(std::move(on_tenants)) {}

  static FileStamp StampOf(const std::string& path);
  absl::Status Load();
  std::shared_ptr<const AccessFile> file() const;
  void Count(Refusal refusal) { ++refused_[static_cast<size_t>(refusal)]; }

  const std::string path_;
  const OnTenants on_tenants_;
  std::array<std::atomic<uint64_t>, 3> refused_ = {};  // indexed by Refusal
  std::atomic<bool> has_had_keys_ = false;
  std::atomic<uint64_t> reloads_ = 0;
  std::atomic<uint64_t> reloads_refused_ = 0;
  FileStamp stamp_;  // of the latest file that was looked at; used by the reloading thread only
  mutable absl::Mutex mutex_;
  std::shared_ptr<const AccessFile> file_ ABSL_GUARDED_BY(mutex_);
};

// The secret in the value of an Authorization header, "Bearer SECRET" in any case; nothing where it
// has another form.
std::optional<std::string_view> BearerSecret(std::string_view authorization);

}  // namespace tandem
