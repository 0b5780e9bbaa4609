#include "server/commands/tls_flags.h"

#include "CLI/CLI.hpp"

namespace tandem {
namespace {

constexpr char kTlsGroup[] = "TLS (docs/security.md)";

}  // namespace

void AddPortTlsFlags(CLI::App& app, TlsFiles& files) {
  app.add_option(
         "--tls-cert", files.cert,
         "certificate of this process, a PEM file: all its ports but that of --metrics-port use "
         "TLS, and router and workers must show one another certificates that --tls-ca "
         "vouches for; `tandem certs` makes some")
      ->group(kTlsGroup);
  app.add_option("--tls-key", files.key, "the private key of --tls-cert, a PEM file")
      ->group(kTlsGroup);
  app.add_option("--tls-ca", files.ca, "authorities whose certificates are trusted, a PEM file")
      ->group(kTlsGroup);
}

void AddTlsClientsFlag(CLI::App& app, std::string& clients) {
  app.add_option(
         "--tls-clients", clients,
         "whether clients need a certificate of --tls-ca with the identity of a client or an "
         "admin, over gRPC and HTTPS: optional, require")
      ->check(CLI::IsMember({"optional", "require"}))
      ->capture_default_str()
      ->group(kTlsGroup);
}

void AddClientTlsFlags(CLI::App& app, TlsFiles& files) {
  app.add_option("--tls-ca", files.ca,
                 "use TLS: PEM file with the authorities that may have signed the server's "
                 "certificate")
      ->check(CLI::ExistingFile)
      ->group(kTlsGroup);
  app.add_option("--tls-cert", files.cert,
                 "PEM file with the certificate to show, for servers with --tls-clients require")
      ->check(CLI::ExistingFile)
      ->group(kTlsGroup);
  app.add_option("--tls-key", files.key, "the private key of --tls-cert, a PEM file")
      ->check(CLI::ExistingFile)
      ->group(kTlsGroup);
}

}  // namespace tandem
