// Writes one new file front to back, hashing on the way, or a slice of one. finish() makes it durable; without it the
// file is unfinished.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/part.h"
#include "io/files/fs.h"
#include "io/hash.h"

namespace lathe::io {

class FileWriter {
 public:
  FileWriter(Fs&, const std::string& path);  // UserError if the name exists
  // Of a file that is there only the bytes `slice`: whoever writes the file front to back writes these, and the others
  // pass by. Other ranks may need the next bytes of this one to write theirs, so what fails is told by finish() alone.
  FileWriter(Fs&, const std::string& path, const Part& slice);
  const std::string& path() const { return path_; }
  int64_t size() const { return at_; }  // of the file, so far
  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(bytes_of(text)); }
  FileDigest finish();  // flush, fsync, close; of the slice

 private:
  void flush();
  template <class Action>
  void attempt(Action&&);

  std::string path_;
  std::optional<File> file_;  // none: an empty slice
  Part slice_{0, std::numeric_limits<int64_t>::max()};
  bool is_slice_ = false;
  std::optional<UserError> failed_;
  Hasher hasher_;
  std::vector<std::byte> buffer_;
  int64_t at_ = 0, written_ = 0;
};

}  // namespace lathe::io
