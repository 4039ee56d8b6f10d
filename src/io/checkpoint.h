// Checkpoint directories: `dir/step-000000123/` holding files and manifest.json. The rename to that name is the one
// point of publication: before it there is only `.tmp-step-...`, which nobody reads; after it everything is on disk. So
// a reader takes the newest directory whose manifest validates, and no pointer file exists that could run ahead of the
// data. The caller holds the RunLock of the run: one writer per directory at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/files/file_writer.h"
#include "io/files/fs.h"
#include "io/manifest.h"
#include "io/safetensors.h"

namespace lathe::io {

enum class Verify {
  size,  // manifest, and existence and size of every file
  full,  // and every file's hash
};

using Notes = std::vector<std::string>;  // one line each, for the user

struct CheckpointFile {
  std::string name;
  int64_t size = 0;                        // bytes that are written
  std::function<void(FileWriter&)> write;  // the content; syncing and hashing is not its business
};
CheckpointFile text_file(std::string name, std::string content);
CheckpointFile tensor_file(std::string name, std::vector<TensorData> tensors, Metadata metadata = {});

// The directory of an equal checkpoint that is there: a valid one of the same step and recipe, to be kept as it is.
std::optional<std::string> existing_checkpoint(Fs&, const std::string& dir, const Manifest& about);

// One checkpoint being written. Files come from add(), or from several ranks: prepare() makes them, each rank writes
// its slices of them (write_slices(), with path()), and record() is told what they wrote. Unless publish() succeeded,
// the destructor removes what was written.
class CheckpointWriter {
 public:
  CheckpointWriter(Fs&, std::string dir, std::string_view job_id,
                   Manifest about);  // about.files is filled by this class
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  const std::string& path() const { return tmp_; }
  void add(const CheckpointFile&);
  void prepare(std::span<const CheckpointFile>);                  // makes them, empty
  void record(std::string name, std::vector<FileDigest> pieces);  // in order; empty ones may be among them
  std::string publish();  // returns the final path; when it returns the checkpoint is durable

 private:
  void discard() noexcept;

  Fs& fs_;
  std::string dir_, suffix_, tmp_;  // tmp_ is empty when there is nothing to remove
  Manifest manifest_;
};

// Of n ranks that write files together, what rank `rank` writes into path() of a CheckpointWriter: the same share of
// each file, in whole pages, durable when it returns; what record() is told, by file. Every rank writes the same files:
// what makes a tensor (TensorData::make) is called on all of them, also where writing failed before.
std::vector<FileDigest> write_slices(Fs&, const std::string& path, std::span<const CheckpointFile>, int ranks,
                                     int rank);

// Writes and publishes in one call. A valid step of the same number and recipe is kept as it is and nothing is written;
// a damaged one, or one of another recipe or of none, is replaced.
std::string publish_checkpoint(Fs&, const std::string& dir, std::string_view job_id, Manifest about,
                               std::span<const CheckpointFile> files);

struct Checkpoint {
  std::string path;
  Manifest manifest;
};

struct Inspection {
  enum class Status { valid, damaged, newer };
  Status status = Status::damaged;
  std::string reason;  // empty when valid
  Manifest manifest;
};
Inspection inspect_checkpoint(Fs&, const std::string& path, Verify);

// Steps back past damaged checkpoints; each leaves a note with its reason. One of a newer format version is a
// UserError: going back behind it silently would throw work away.
std::optional<Checkpoint> find_newest_valid(Fs&, const std::string& dir, Verify, Notes&);

std::vector<int64_t> list_steps(Fs&, const std::string& dir);  // ascending, valid or not; empty when dir is missing
std::string step_name(int64_t step);

// Removes what writers left behind that died: `.tmp-step-*` and `.trash-step-*`. A failure is a note, not an error.
void clean_leftovers(Fs&, const std::string& dir, Notes&);

// Removes checkpoints older than the newest `keep_last` validated ones. Each survivor is hashed once per process, then
// only checked for size. A failure is a note: the checkpoints that count are already safe.
class Retention {
 public:
  explicit Retention(int64_t keep_last);  // >= 1
  void apply(Fs&, const std::string& dir, Notes&);

 private:
  int64_t keep_last_;
  std::set<int64_t> hashed_;
};

}  // namespace lathe::io
