#include "engine/handoff/kv_dumper.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "fmt/format.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDumpSuffix = ".kv";

// The name of the temporary file for `file`. It holds the process id, because other workers may
// write to the same directory.
fs::path DraftOf(const fs::path& file) {
  return file.parent_path() / fmt::format(".{}.{}.part", file.filename().string(), getpid());
}

uint64_t SizeOfFile(const fs::path& file) {
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  return error ? 0 : size;
}

absl::Status WriteBytes(const fs::path& file, std::span<const std::byte> head,
                        std::span<const std::byte> records) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  // A prompt can be inferred from its KV, so only the owner of the worker may read the file.
  std::error_code error;
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write, error);
  for (const std::span<const std::byte> bytes : {head, records}) {
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  out.close();
  if (out && !error) return absl::OkStatus();
  return Internal("{} cannot be written: the disk may be full", file.string());
}

// Writes a temporary file and renames it, so that a file with the final name is always whole.
absl::Status WriteDump(const fs::path& file, std::span<const std::byte> head,
                       std::span<const std::byte> records) {
  const fs::path draft = DraftOf(file);
  absl::Status status = WriteBytes(draft, head, records);
  std::error_code error;
  if (status.ok()) fs::rename(draft, file, error);
  if (error) status = Internal("{} cannot be written: {}", file.string(), error.message());
  if (!status.ok()) fs::remove(draft, error);
  return status;
}

}  // namespace

std::string KvDumpFileName(std::string_view request_id) {
  constexpr size_t kMostNameBytes = 100;
  std::string name(request_id.substr(0, kMostNameBytes));
  for (char& c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!is_plain) c = '_';
  }
  if (name.starts_with('.')) name.front() = '_';
  if (name != request_id || name.empty()) {
    name += fmt::format("-{:016x}", Hash64(std::as_bytes(std::span(request_id))));
  }
  return name + std::string(kDumpSuffix);
}

bool KvDumpBudget::Reserve(uint64_t bytes) {
  if (used_.fetch_add(bytes) + bytes <= most_bytes_) return true;
  used_ -= bytes;
  return false;
}

void KvDumpBuffer::Add(std::span<const PostedExtent> extents) {
  for (const PostedExtent& extent : extents) {
    if (!Reserve(kKvDumpRecordBytes + extent.payload.size())) return;
    const int32_t first = static_cast<int32_t>(extent.block) * block_tokens_;
    AppendKvDumpRecord({.layer = extent.layer,
                        .block = extent.block,
                        .tokens = std::min(block_tokens_, sent_tokens_ - first),
                        .framed = extent.kind == PayloadKind::kEncoded,
                        .payload = extent.payload},
                       records_);
    ++num_records_;
  }
}

bool KvDumpBuffer::Reserve(uint64_t bytes) {
  if (dropped_) return false;
  if (!budget_->Reserve(bytes)) {
    Drop();
    return false;
  }
  reserved_ += bytes;
  return true;
}

void KvDumpBuffer::Drop() {
  dropped_ = true;
  budget_->GiveBack(std::exchange(reserved_, 0));
  records_ = {};
  num_records_ = 0;
}

absl::StatusOr<std::unique_ptr<KvDumper>> KvDumper::Open(const Options& options) {
  std::error_code error;
  uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(options.directory, error)) {
    if (entry.path().extension() == kDumpSuffix) bytes += SizeOfFile(entry.path());
  }
  const fs::path trial = DraftOf(fs::path(options.directory) / "trial");
  if (!error && !WriteBytes(trial, {}, {}).ok()) {
    error = std::make_error_code(std::errc::permission_denied);
  }
  if (error) {
    return InvalidArgument("--kv-dump={}: no file can be written there ({}): give a directory",
                           options.directory, error.message());
  }
  fs::remove(trial, error);
  return std::make_unique<KvDumper>(options, bytes);
}

KvDumper::KvDumper(const Options& options, uint64_t bytes_there)
    : options_(options), budget_(std::make_shared<KvDumpBudget>(options.most_bytes, bytes_there)) {
  if (bytes_there < options.most_bytes) return;
  LogWarn("kv_dump={} bytes={} limit={}: the directory is full, so nothing will be written to it",
          options.directory, bytes_there, options.most_bytes);
}

std::unique_ptr<KvDumpBuffer> KvDumper::NewBuffer(int32_t sent_tokens) const {
  return std::make_unique<KvDumpBuffer>(budget_, options_.layout.block_tokens, sent_tokens);
}

void KvDumper::Write(KvDumpHeader header, std::unique_ptr<KvDumpBuffer> buffer) {
  if (buffer == nullptr) return;
  if (buffer->dropped()) ++skipped_;
  if (buffer->num_records() == 0) return;
  header.layout = options_.layout;
  // A job must be copyable, which a unique_ptr to the buffer is not.
  writer_.Queue(
      [this, header = std::move(header),
       shared = std::shared_ptr<KvDumpBuffer>(std::move(buffer))] { WriteNow(header, *shared); });
}

void KvDumper::WriteNow(const KvDumpHeader& header, KvDumpBuffer& buffer) {
  const std::vector<std::byte> head =
      MakeKvDumpHead(header, buffer.num_records(), buffer.records());
  if (!buffer.Reserve(head.size())) {
    ++skipped_;
    return;
  }
  const fs::path file = fs::path(options_.directory) / KvDumpFileName(header.request_id);
  const uint64_t replaced = SizeOfFile(file);
  if (const absl::Status status = WriteDump(file, head, buffer.records()); !status.ok()) {
    LogWarn("request={} kv_dump: {}", header.request_id, status.ToString());
    ++skipped_;
    return;
  }
  buffer.KeepReserved();
  budget_->GiveBack(replaced);
  ++written_;
}

void KvDumper::AddTo(EngineStats& stats) const {
  stats.kv_dumps = {.written = written_, .skipped = skipped_, .bytes = budget_->used()};
}

}  // namespace tandem
