#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "security/tls_files.h"

namespace tandem {

// What TlsFiles contain, as PEM: read together, and the key is the certificate's. What was not
// named is empty.
struct TlsMaterial {
  std::string cert_pem;
  std::string key_pem;
  std::string ca_pem;
};

// INVALID_ARGUMENT names the file and the reason.
absl::StatusOr<TlsMaterial> LoadTlsMaterial(const TlsFiles& files);

// The contents of TlsFiles, read again when a file has changed. Thread-safe.
class TlsSource {
 public:
  // How often the files are looked at, which takes a system call for each.
  static constexpr Duration kRecheck = std::chrono::seconds(1);

  // Reads the files. INVALID_ARGUMENT as above.
  static absl::StatusOr<std::shared_ptr<TlsSource>> Open(const TlsFiles& files,
                                                         Duration recheck = kRecheck);

  // What the files contain now. Files that cannot be used, such as half-written ones, change
  // nothing and are logged; they are tried again once they have changed.
  std::shared_ptr<const TlsMaterial> Current();
  const TlsFiles& files() const { return files_; }

 private:
  // When each file was last changed, and where it lies: different after any change.
  struct Stamp {
    int64_t device = -1;
    int64_t inode = -1;
    int64_t modified_ns = -1;
    int64_t changed_ns = -1;
    int64_t bytes = -1;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  using Stamps = std::array<Stamp, 3>;

  TlsSource(TlsFiles files, Duration recheck, const Stamps& stamps, TlsMaterial material);
  static Stamp StampOf(const std::string& path);
  static Stamps StampsOf(const TlsFiles& files);

  const TlsFiles files_;
  const Duration recheck_;
  absl::Mutex mutex_;
  TimePoint next_check_ ABSL_GUARDED_BY(mutex_);
  Stamps stamps_ ABSL_GUARDED_BY(mutex_);  // of the files that were tried last
  std::shared_ptr<const TlsMaterial> material_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
