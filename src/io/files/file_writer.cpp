#include "io/files/file_writer.h"

namespace lathe::io {

namespace {
constexpr size_t kBufferBytes = 256 << 10;  // gathers small tensors; larger pieces go straight to the file
}

FileWriter::FileWriter(Fs& fs, const std::string& path) : file_(File::create(fs, path)) {}

void FileWriter::write(std::span<const std::byte> data) {
  hasher_.update(data);
  size_ += static_cast<int64_t>(data.size());
  if (buffer_.size() + data.size() > kBufferBytes) flush();
  if (data.size() >= kBufferBytes)
    file_.write(data);
  else
    buffer_.insert(buffer_.end(), data.begin(), data.end());
}

void FileWriter::flush() {
  file_.write(buffer_);
  buffer_.clear();
}

FileDigest FileWriter::finish() {
  flush();
  file_.sync();
  file_.close();
  return {.size = size_, .xxh3 = hasher_.hex()};
}

}  // namespace lathe::io
