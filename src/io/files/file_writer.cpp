#include "io/files/file_writer.h"

#include <algorithm>

namespace lathe::io {

namespace {
constexpr size_t kBufferBytes = 256 << 10;  // gathers small tensors; larger pieces go straight to the file
}

FileWriter::FileWriter(Fs& fs, const std::string& path) : path_(path), file_(File::create(fs, path)) {}

FileWriter::FileWriter(Fs& fs, const std::string& path, const Part& slice)
    : path_(path), slice_(slice), is_slice_(true) {
  if (slice.size() == 0) return;
  attempt([&] {
    file_.emplace(File::open_write(fs, path));
    file_->seek(slice.first);
  });
}

// What fails in a slice is kept for finish(), and nothing more is tried.
template <class Action>
void FileWriter::attempt(Action&& action) {
  if (!is_slice_) return action();
  if (failed_) return;
  try {
    action();
  } catch (const UserError& e) {
    failed_ = e;
  }
}

void FileWriter::write(std::span<const std::byte> data) {
  const auto size = static_cast<int64_t>(data.size());
  const int64_t from = std::clamp<int64_t>(slice_.first - at_, 0, size),
                to = std::clamp<int64_t>(slice_.last - at_, 0, size);
  at_ += size;
  if (from >= to) return;
  data = data.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
  hasher_.update(data);
  written_ += to - from;
  if (buffer_.size() + data.size() > kBufferBytes) flush();
  if (data.size() >= kBufferBytes)
    attempt([&] { file_->write(data); });
  else
    buffer_.insert(buffer_.end(), data.begin(), data.end());
}

void FileWriter::flush() {
  if (!buffer_.empty()) attempt([&] { file_->write(buffer_); });
  buffer_.clear();
}

FileDigest FileWriter::finish() {
  flush();
  if (file_)
    attempt([&] {
      file_->sync();
      file_->close();
    });
  if (failed_) throw UserError(*failed_);
  LATHE_CHECK(!is_slice_ || written_ == slice_.size(), "{}: a slice of {} bytes, written {}", path_, slice_.size(),
              written_);
  return {.size = written_, .xxh3 = hasher_.hex()};
}

}  // namespace lathe::io
