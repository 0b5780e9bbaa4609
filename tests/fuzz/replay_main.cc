// Runs a fuzz target without a fuzzer: every file of the corpus directory, then seeded mutations of
// each, so that each compiler and each sanitizer build walks the same foreign bytes.
//   x_fuzz CORPUS_DIRECTORY [MUTATIONS_PER_FILE]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr int kDefaultMutations = 300;
constexpr size_t kMaxInputBytes = 1 << 20;

Bytes ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// Sorted, so that the same seed gives the same inputs on every file system.
std::vector<Bytes> ReadCorpus(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) corpus.push_back(ReadBytes(path));
  return corpus;
}

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<Bytes>& corpus) : random_(seed), corpus_(corpus) {}

  Bytes Mutate(Bytes bytes) {
    const size_t steps = 1 + Below(4);
    for (size_t step = 0; step < steps; ++step) MutateOnce(bytes);
    if (bytes.size() > kMaxInputBytes) bytes.resize(kMaxInputBytes);
    return bytes;
  }

 private:
  size_t Below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void MutateOnce(Bytes& bytes) {
    const size_t at = Below(bytes.size() + 1);
    const size_t length = std::min(bytes.size() - at, 1 + Below(64));
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(at);
    const auto end = begin + static_cast<ptrdiff_t>(length);
    switch (Below(6)) {
      case 0:
        if (length > 0) *begin ^= static_cast<uint8_t>(1U << Below(8));
        break;
      case 1: {
        constexpr uint8_t kTelling[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, '"', '{', '[', '0', '-'};
        if (length > 0) *begin = kTelling[Below(std::size(kTelling))];
        break;
      }
      case 2:
        bytes.erase(begin, end);
        break;
      case 3: {
        const Bytes copy(begin, end);
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(Below(bytes.size() + 1)), copy.begin(),
                     copy.end());
        break;
      }
      case 4:
        bytes.resize(at);
        break;
      default: {
        const Bytes& other = corpus_[Below(corpus_.size())];
        const size_t from = Below(other.size() + 1);
        const size_t count = std::min(other.size() - from, 1 + Below(256));
        bytes.insert(begin, other.begin() + static_cast<ptrdiff_t>(from),
                     other.begin() + static_cast<ptrdiff_t>(from + count));
      }
    }
  }

  std::mt19937_64 random_;
  const std::vector<Bytes>& corpus_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_DIRECTORY [MUTATIONS_PER_FILE]\n", argv[0]);
    return 2;
  }
  const int mutations = argc > 2 ? std::atoi(argv[2]) : kDefaultMutations;
  const std::vector<Bytes> corpus = ReadCorpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s has no files: a fuzz test without a corpus tests nothing\n", argv[1]);
    return 1;
  }
  Mutator mutator(20240229, corpus);
  for (const Bytes& bytes : corpus) LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  for (const Bytes& bytes : corpus) {
    for (int i = 0; i < mutations; ++i) {
      const Bytes mutated = mutator.Mutate(bytes);
      LLVMFuzzerTestOneInput(mutated.data(), mutated.size());
    }
  }
  std::printf("%zu files, %d mutations of each\n", corpus.size(), mutations);
  return 0;
}
