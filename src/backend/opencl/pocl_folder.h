// PoCL compiles into files of a folder and trusts what it finds there: a damaged file aborts the process. So PoCL gets
// a folder that belongs to this process alone, empty at its start and gone after its end, and what a program needs of
// it is kept in the BinaryCache, one entry per program: whole, with a hash, safe for many processes. (Programs could be
// kept as OpenCL's binaries, but asking PoCL 3.1 for them compiles every kernel a second time.)
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kernels/binary_cache.h"

namespace lathe {

class PoclFolder {
 public:
  // A new folder below `parent`, which also loses those of processes that were killed; "" when it cannot be written to.
  // Where the user has set POCL_CACHE_DIR, that is PoCL's folder and this does nothing.
  explicit PoclFolder(const std::string& parent);
  ~PoclFolder();
  PoclFolder(const PoclFolder&) = delete;
  PoclFolder& operator=(const PoclFolder&) = delete;

  // The one of this process, below BinaryCache::default_folder().
  static PoclFolder& of_process();
  const std::string& path() const { return path_; }  // "": PoCL's folder is not ours

  // Calls `compile`, which builds one program, with the files that the cache has of it in place. Returns whether there
  // were any.
  bool build(const BinaryCache&, const std::string& key, const std::function<void()>& compile);
  // Stores the files of a program that build() has seen, if there are more than the cache gave.
  void keep(const BinaryCache&, const std::string& key);

 private:
  struct Program {
    std::set<std::string> folders;  // of path_, "AB/CDEF..."
    std::set<std::string> kept;     // files that the cache has
  };
  std::set<std::string> folders() const;
  std::set<std::string> files(const Program&) const;

  std::string path_;
  int lock_ = -1;
  std::mutex mutex_;
  std::map<std::string, Program> programs_;  // by key
};

// Sets POCL_CACHE_DIR to the folder of this process while drivers start, which is when PoCL reads it; programs that
// this one starts do not see it.
class PoclFolderVariable {
 public:
  PoclFolderVariable();
  ~PoclFolderVariable();

 private:
  bool set_ = false;
};

// Files below a folder as one block of bytes, and back. unpack_files() is false, and what it wrote undefined, for bytes
// that pack_files() did not make or where the folder cannot be written.
std::vector<unsigned char> pack_files(const std::string& folder, const std::set<std::string>& names);
bool unpack_files(const std::string& folder, const std::vector<unsigned char>&, std::set<std::string>* names);

}  // namespace lathe
