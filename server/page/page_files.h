#pragma once

#include <span>
#include <string_view>

namespace tandem {

// A file of the page as it is in server/page/, which the build copies into the binary
// (cmake/embed_page.cmake).
struct PageFile {
  std::string_view name;  // "app.js"
  std::string_view bytes;
  std::string_view sha256;  // of the bytes, in hexadecimal
};

std::span<const PageFile> PageFiles();

}  // namespace tandem
