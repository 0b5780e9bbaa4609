#include "server/assembly/model_name.h"

#include <filesystem>
#include <system_error>

namespace tandem {

std::string ModelNameFor(const std::string& directory) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(directory, error);
  if (error) path = directory;
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

}  // namespace tandem
