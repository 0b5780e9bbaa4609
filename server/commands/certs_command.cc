#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "fmt/chrono.h"
#include "fmt/ranges.h"
#include "security/certificate.h"
#include "security/certificate_folder.h"
#include "server/commands/commands.h"

namespace tandem {
namespace {

constexpr int kMostDays = 36500;
// The authority is valid for longer than the certificates that it signs.
constexpr int kLeastAuthorityDays = 3650;

struct CertsFlags {
  std::string folder;
  std::string role;  // empty: all that a fleet needs
  std::string name;  // the name of the process within the role
  std::vector<std::string> hosts;
  int days = 365;
  bool force = false;
  bool check = false;
};

// One certificate that is to be made.
struct WantedCertificate {
  std::string stem;
  CertificateRequest request;
  std::string use;
};

absl::StatusOr<WantedCertificate> Wanted(const CertsFlags& flags, const std::string& role,
                                         const std::string& name) {
  WantedCertificate wanted;
  // `tandem up` gives all its processes the same certificate.
  const std::vector<std::pair<std::string, std::string>> identities =
      role == "up"
          ? std::vector<std::pair<std::string, std::string>>{{"router", "up"}, {"worker", kAnyName}}
          : std::vector<std::pair<std::string, std::string>>{{role, name}};
  for (const auto& [of_role, of_name] : identities) {
    ASSIGN_OR_RETURN(Identity identity, MakeIdentity(of_role, of_name));
    wanted.request.identities.push_back(std::move(identity));
  }
  const bool is_usual_name = name == kAnyName || name == role;
  wanted.stem = is_usual_name ? role : role + "-" + name;
  wanted.request.common_name = wanted.stem;
  wanted.request.valid_until = std::chrono::hours(24) * flags.days;
  const bool serves_https = role == "router" || role == "up";
  if (serves_https) wanted.request.hosts = {"localhost", "127.0.0.1", "::1"};
  // Certificates of roles that do not serve HTTPS hold hosts only if made one by one, with --role.
  if (serves_https || !flags.role.empty()) {
    for (const std::string& host : flags.hosts) wanted.request.hosts.push_back(host);
  }
  wanted.use = role == "up"                          ? "tandem up"
               : role == "client" || role == "admin" ? "tandem generate, status, ..."
                                                     : "tandem " + role;
  return wanted;
}

absl::StatusOr<std::vector<WantedCertificate>> AllWanted(const CertsFlags& flags) {
  std::vector<WantedCertificate> all;
  std::vector<std::string> roles = {"router", "worker", "up", "client", "admin"};
  if (!flags.role.empty()) roles = {flags.role};
  if (flags.role.empty() && !flags.name.empty()) {
    return InvalidArgument("--name \"{}\" needs --role: say what is called so", flags.name);
  }
  if (flags.role == "up" && !flags.name.empty()) {
    return InvalidArgument("--name \"{}\": the certificate of --role up has no name of its own",
                           flags.name);
  }
  for (const std::string& role : roles) {
    const std::string usual = role == "worker" ? kAnyName : role;
    ASSIGN_OR_RETURN(WantedCertificate wanted,
                     Wanted(flags, role, flags.name.empty() ? usual : flags.name));
    all.push_back(std::move(wanted));
  }
  return all;
}

std::string DateOf(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

void PrintLine(const std::string& file, const CertificateInfo& info, const std::string& state) {
  fmt::print("{}\n  identity {}\n  hosts    {}\n  expires  {}\n  {}\n", file,
             info.is_authority   ? "(an authority)"
             : info.uris.empty() ? "none"
                                 : fmt::format("{}", fmt::join(info.uris, ", ")),
             info.hosts.empty() ? "none" : fmt::format("{}", fmt::join(info.hosts, ", ")),
             DateOf(info.not_after), state);
}

absl::Status MakeCertificates(const CertsFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<WantedCertificate> all, AllWanted(flags));
  ASSIGN_OR_RETURN(const CertificateFolder folder, CertificateFolder::Open(flags.folder));
  const auto authority_time = std::chrono::hours(24) * std::max(flags.days, kLeastAuthorityDays);
  ASSIGN_OR_RETURN(const CertificateAuthority authority, folder.OpenAuthority(authority_time));
  const Overwrite overwrite = flags.force ? Overwrite::kYes : Overwrite::kNo;
  for (const WantedCertificate& wanted : all) {
    ASSIGN_OR_RETURN(const IssuedCertificate issued, authority.Issue(wanted.request));
    RETURN_IF_ERROR(folder.Write(wanted.stem, issued, overwrite));
    ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificateInfo(issued.cert_pem));
    PrintLine(folder.CertPath(wanted.stem), info,
              fmt::format("{} --tls-cert {} --tls-key {} --tls-ca {}", wanted.use,
                          folder.CertPath(wanted.stem), folder.KeyPath(wanted.stem),
                          folder.CertPath(CertificateFolder::kAuthority)));
  }
  fmt::print(
      "\nGive each machine the .pem and .key of its processes and ca.pem. Keep ca.key where no\n"
      "process runs: who has it can make certificates. docs/security.md has the steps.\n");
  return absl::OkStatus();
}

// FAILED_PRECONDITION when a certificate in the folder is no longer trusted.
absl::Status CheckCertificates(const CertsFlags& flags) {
  std::error_code error;
  if (!std::filesystem::is_directory(flags.folder, error)) {
    return InvalidArgument("\"{}\" is no folder", flags.folder);
  }
  ASSIGN_OR_RETURN(const CertificateFolder folder, CertificateFolder::Open(flags.folder));
  ASSIGN_OR_RETURN(const std::string ca_pem,
                   ReadPemFile(folder.CertPath(CertificateFolder::kAuthority)));
  int bad = 0;
  for (const std::string& stem : folder.Stems()) {
    const std::string path = folder.CertPath(stem);
    ASSIGN_OR_RETURN(const std::string pem, ReadPemFile(path));
    const absl::StatusOr<CertificateInfo> info = ReadCertificateInfo(pem);
    if (!info.ok()) return Annotate(info.status(), path);
    const absl::Status trusted = CheckTrusted(pem, ca_pem);
    bad += trusted.ok() ? 0 : 1;
    PrintLine(
        path, *info,
        trusted.ok() ? "trusted by ca.pem" : "NOT trusted: " + std::string(trusted.message()));
  }
  if (bad == 0) return absl::OkStatus();
  return FailedPrecondition("{} of the certificates in \"{}\" are not trusted by its ca.pem", bad,
                            flags.folder);
}

}  // namespace

void AddCertsCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<CertsFlags>();
  CLI::App* certs =
      app.add_subcommand("certs", "Make certificates for a fleet of your own, or look at them");
  certs->add_option("folder", flags->folder, "where they are, or are to be")->required();
  certs
      ->add_option("--role", flags->role,
                   "make one certificate only: router, worker, client, admin, or up (for all "
                   "processes of `tandem up`); default: one of each")
      ->check(CLI::IsMember({"router", "worker", "client", "admin", "up"}));
  certs->add_option("--name", flags->name,
                    "with --role: the process's name; default: any worker, or the role's name");
  certs
      ->add_option("--hosts", flags->hosts,
                   "DNS names and IP addresses, with commas between, by which clients of HTTPS "
                   "call the router; besides localhost")
      ->delimiter(',');
  certs->add_option("--days", flags->days, "how long the certificates are valid")
      ->check(CLI::Range(1, kMostDays))
      ->capture_default_str();
  CLI::Option* const force = certs->add_flag(
      "--force", flags->force, "replace certificates that are there; the authority stays as it is");
  certs
      ->add_flag("--check", flags->check,
                 "make nothing: print identity, hosts and expiry of each; exit 1 when one is not "
                 "trusted any more")
      ->excludes(force);
  certs->footer(
      "Examples:\n"
      "  tandem certs fleet --hosts llm.example,10.0.0.1\n"
      "  tandem certs fleet --role worker --name decode-0\n"
      "  tandem certs fleet --check");
  certs->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status =
          flags->check ? CheckCertificates(*flags) : MakeCertificates(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
}

}  // namespace tandem
