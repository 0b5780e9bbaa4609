#include "model/checkpoint/checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/status.h"
#include "model/checkpoint/safetensors.h"
#include "model/checkpoint/shard_index.h"
#include "model/checkpoint/strict_json.h"

namespace tandem {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{64} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& directory) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  const std::string single = fmt::format("{}/{}", directory, kSingleFile);
  const std::string index = fmt::format("{}/{}", directory, kIndexFile);
  if (FileExists(single)) {
    RETURN_IF_ERROR(checkpoint->AddFile(single));
  } else if (FileExists(index)) {
    RETURN_IF_ERROR(checkpoint->AddShards(directory, index));
  } else {
    return NotFound("{}: neither {} nor {} is there", directory, kSingleFile, kIndexFile);
  }
  return checkpoint;
}

absl::Status Checkpoint::AddFile(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  auto entries = ParseSafetensorsHeader(file.bytes(), file.bytes().size());
  if (!entries.ok()) return Annotate(entries.status(), path);
  for (SafetensorsEntry& entry : *entries) {
    const std::span<const std::byte> bytes =
        file.bytes().subspan(entry.begin, entry.end - entry.begin);
    const bool added =
        tensors_.try_emplace(entry.name, CheckpointTensor{entry.dtype, entry.shape, bytes}).second;
    if (!added) {
      return InvalidArgument("{}: tensor {} is in another shard too", path, Quoted(entry.name));
    }
    total_bytes_ += bytes.size();
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status Checkpoint::AddShards(const std::string& directory, const std::string& index_path) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(index_path, kMaxIndexBytes));
  auto shards = ParseShardIndex(text);
  if (!shards.ok()) return Annotate(shards.status(), index_path);
  for (const auto& [file, tensors] : *shards) {
    const std::string path = fmt::format("{}/{}", directory, file);
    if (!FileExists(path)) {
      return NotFound("{}: no such file, though {} names it: copy all shards", path, kIndexFile);
    }
    // Each tensor must come from the shard that the index names, not from an earlier shard.
    for (const std::string& tensor : tensors) {
      if (Contains(tensor)) {
        return InvalidArgument("{}: {} promises tensor {} here, but an earlier shard has it", path,
                               kIndexFile, Quoted(tensor));
      }
    }
    RETURN_IF_ERROR(AddFile(path));
    for (const std::string& tensor : tensors) {
      if (!Contains(tensor)) {
        return InvalidArgument("{}: tensor {} is not in it, though {} says so", path,
                               Quoted(tensor), kIndexFile);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointTensor> Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(std::string(name));
  if (found == tensors_.end()) return NotFound("the checkpoint has no tensor {}", Quoted(name));
  return found->second;
}

bool Checkpoint::Contains(std::string_view name) const {
  return tensors_.contains(std::string(name));
}

std::vector<std::string> Checkpoint::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

DType Checkpoint::PrevalentDType() const {
  std::map<DType, size_t> bytes;
  for (const auto& [name, tensor] : tensors_) {
    const bool is_code = tensor.dtype == DType::kI8 || tensor.dtype == DType::kF8E4M3;
    if (!is_code) bytes[tensor.dtype] += tensor.bytes.size();
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? DType::kBF16 : most->first;
}

void Checkpoint::Forget(const CheckpointTensor& tensor) const {
  // Only whole pages are released; a page that another tensor shares stays resident.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(tensor.bytes.data());
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (first + tensor.bytes.size()) / page * page;
  // madvise is only advice: if the system ignores it, only memory is lost.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace tandem
