# Writes OUTPUT, a source that has the bytes of FILES (server/page/page_files.h):
#   cmake -DOUTPUT=page_files.cc "-DFILES=a.html;b.js" -P embed_page.cmake
set(table "")
foreach(path ${FILES})
  get_filename_component(name ${path} NAME)
  file(SHA256 ${path} hash)
  file(READ ${path} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  # A literal for each line, because compilers promise no more than 64 KiB for one.
  string(REPLACE "\\x0a" "\\x0a\"\n     \"" bytes "${bytes}")
  string(APPEND table "    {\"${name}\"sv,\n     \"${bytes}\"sv,\n     \"${hash}\"sv},\n")
endforeach()
file(WRITE ${OUTPUT} "// Made by cmake/embed_page.cmake.
#include \"server/page/page_files.h\"

namespace tandem {
namespace {

using namespace std::string_view_literals;

constexpr PageFile kFiles[] = {
${table}};

}  // namespace

std::span<const PageFile> PageFiles() { return kFiles; }

}  // namespace tandem
")
