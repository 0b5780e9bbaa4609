#include "server/commands/http_flags.h"

#include "CLI/CLI.hpp"
#include "server/commands/size_flag.h"

namespace tandem {
namespace {

constexpr int kMostThreads = 64;
constexpr int kDaySeconds = 24 * 3600;

}  // namespace

void AddHttpFlags(CLI::App& app, HttpTuning& tuning) {
  constexpr char kGroup[] = "HTTP";
  app.add_option("--http-tls-cert", tuning.tls.cert,
                 "serve HTTPS: PEM file with the certificate and those that signed it")
      ->group(kGroup);
  app.add_option("--http-tls-key", tuning.tls.key, "PEM file with the certificate's private key")
      ->group(kGroup);
  app.add_option("--http-threads", tuning.threads, "threads that read and write HTTP connections")
      ->check(CLI::Range(1, kMostThreads))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--http-max-body-bytes", tuning.max_body_bytes,
                 "of one HTTP request, as 16MiB; larger ones are refused unread")
      ->transform(SizeFlag(Kilo::k1024))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--http-max-total-body-bytes", tuning.max_total_body_bytes,
                 "of the HTTP requests that are being received; more are told to come again")
      ->transform(SizeFlag(Kilo::k1024))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--http-idle-seconds", tuning.idle_seconds,
                 "an HTTP connection without a request is closed after so long")
      ->check(CLI::Range(1, kDaySeconds))
      ->capture_default_str()
      ->group(kGroup);
  app.add_flag("--no-page", tuning.no_page,
               "show browsers neither the page to try the model with nor that of the status")
      ->group(kGroup);
}

}  // namespace tandem
