// Writes one new file front to back, hashing on the way. finish() makes it durable; without it the file is unfinished.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/files/fs.h"
#include "io/hash.h"

namespace lathe::io {

class FileWriter {
 public:
  FileWriter(Fs&, const std::string& path);  // UserError if the name exists
  const std::string& path() const { return file_.path(); }
  int64_t size() const { return size_; }
  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(bytes_of(text)); }
  FileDigest finish();  // flush, fsync, close

 private:
  void flush();

  File file_;
  Hasher hasher_;
  std::vector<std::byte> buffer_;
  int64_t size_ = 0;
};

}  // namespace lathe::io
