#include "bench/serving/report_page.h"

#include "bench/serving/svg_plot.h"
#include "fmt/format.h"

namespace tandem::loadgen {

std::string ReportPage(const std::string& title, const std::string& figures,
                       const std::string& markdown) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font:14px sans-serif;margin:24px;color:#222}}svg{{margin:8px}}"
      "svg text{{font:11px sans-serif;fill:#333}}svg .title{{font-weight:bold}}"
      "pre{{background:#f6f6f6;padding:12px;overflow:auto}}</style></head><body>\n"
      "<h1>{0}</h1>\n{1}<pre>{2}</pre>\n</body></html>\n",
      EscapeHtml(title), figures, EscapeHtml(markdown));
}

}  // namespace tandem::loadgen
