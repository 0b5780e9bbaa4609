#include "tests/support/tree.h"

#include <filesystem>

namespace tandem {
namespace {

std::string ProgramBesideThisOne(std::string_view name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

}  // namespace

std::string TreePath(std::string_view relative) {
  return std::string(TANDEM_SOURCE_DIR "/").append(relative);
}

std::string SampleModel() { return TreePath("models/sample"); }

std::string DaemonBinary() { return ProgramBesideThisOne("tandem"); }

std::string EmulatedDaemonBinary() { return ProgramBesideThisOne("tandem_emulated"); }

}  // namespace tandem
