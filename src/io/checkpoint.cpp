#include "io/checkpoint.h"

#include <algorithm>
#include <random>
#include <utility>

namespace lathe::io {

namespace {

constexpr std::string_view kManifestName = "manifest.json";
constexpr int64_t kMaxManifestBytes = 8 << 20;
constexpr std::string_view kStep = "step-", kTmp = ".tmp-", kTrash = ".trash-";

// Names are unique per attempt, so a left-over of a dead writer never stands in the way of a new one.
std::string nonce() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

std::string as_component(std::string_view job_id) {
  std::string out(job_id.substr(0, 64));
  for (char& c : out)
    if (!is_plain_name(std::string_view(&c, 1)) && c != '.') c = '_';
  return out.empty() ? "0" : out;
}

std::optional<int64_t> parse_step(std::string_view name) {
  if (!name.starts_with(kStep) || name.size() > kStep.size() + 18) return std::nullopt;
  int64_t step = 0;
  for (const char c : name.substr(kStep.size())) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  return name == step_name(step) ? std::optional(step) : std::nullopt;
}

std::string read_manifest_text(Fs& fs, const std::string& dir) {
  const File file = File::open_read(fs, join_path(dir, kManifestName));
  const int64_t size = file.size();
  LATHE_USER_CHECK(size <= kMaxManifestBytes, "{}: expected at most {} bytes, got {}", file.path(), kMaxManifestBytes,
                   size);
  std::string text(static_cast<size_t>(size), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void check_file(Fs& fs, const std::string& dir, const ManifestFile& expected, Verify verify) {
  const std::string path = join_path(dir, expected.name);
  const auto info = info_at(fs, path);
  LATHE_USER_CHECK(info && info->kind == FileInfo::Kind::regular, "{}: missing, or not a regular file", path);
  LATHE_USER_CHECK(info->size == expected.size(), "{}: expected {} bytes, got {}", path, expected.size(), info->size);
  if (verify == Verify::size) return;
  std::vector<int64_t> sizes;
  for (const FileDigest& piece : expected.pieces) sizes.push_back(piece.size);
  const std::vector<FileDigest> found = digest_pieces(fs, path, sizes);
  const auto [bad, got] = std::ranges::mismatch(expected.pieces, found);
  if (bad == expected.pieces.end()) return;
  throw UserError(fmt::format(
      "{}: hash mismatch{}: expected {}, got {}", path,
      found.size() == 1 ? "" : fmt::format(" in piece {} of {}", bad - expected.pieces.begin() + 1, found.size()),
      bad->xxh3, got->xxh3));
}

// Moves a published name out of sight, so that no reader meets a half-removed checkpoint.
std::string move_to_trash(Fs& fs, const std::string& dir, const std::string& name) {
  const std::string trash = join_path(dir, fmt::format("{}{}-{}", kTrash, name, nonce()));
  rename_path(fs, join_path(dir, name), trash);
  return trash;
}

template <class Action>
void try_or_note(Notes& notes, Action&& action) {
  try {
    action();
  } catch (const Error& e) {
    notes.push_back(e.what());
  }
}

void refuse_newer(const std::string& path, const Inspection& found) {
  LATHE_USER_CHECK(found.status != Inspection::Status::newer, "{}: {}", path, found.reason);
}

// A checkpoint's share of a file: whole pages, so that no two ranks write to the same one.
Part slice_of(int64_t size, int ranks, int rank) {
  constexpr int64_t kPage = 4096;
  const Part pages = part_of(size / kPage + (size % kPage != 0), ranks, rank);
  return {std::min(pages.first * kPage, size), std::min(pages.last * kPage, size)};
}

}  // namespace

std::optional<std::string> existing_checkpoint(Fs& fs, const std::string& dir, const Manifest& about) {
  const std::string path = join_path(dir, step_name(about.step));
  if (!info_at(fs, path)) return std::nullopt;
  const bool has_recipe = !about.recipe_hash.empty();
  const Inspection found = inspect_checkpoint(fs, path, has_recipe ? Verify::full : Verify::size);
  refuse_newer(path, found);
  if (!has_recipe) return std::nullopt;  // nothing says that the state is a function of the step
  if (found.status != Inspection::Status::valid || found.manifest.recipe_hash != about.recipe_hash) return std::nullopt;
  // Of the same state with other things to say of it (an evaluation that was due is done): the new one.
  const auto same_key = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (!std::ranges::equal(found.manifest.info, about.info, same_key)) return std::nullopt;
  sync_dir(fs, dir);  // an earlier attempt may have failed between its rename and this call
  return path;
}

std::string step_name(int64_t step) { return fmt::format("{}{:09}", kStep, step); }

CheckpointFile text_file(std::string name, std::string content) {
  const auto size = static_cast<int64_t>(content.size());
  return {std::move(name), size, [content = std::move(content)](FileWriter& out) { out.write(content); }};
}

CheckpointFile tensor_file(std::string name, std::vector<TensorData> tensors, Metadata metadata) {
  const int64_t size = safetensors_size(tensors, metadata);
  return {std::move(name), size, [tensors = std::move(tensors), metadata = std::move(metadata)](FileWriter& out) {
            write_safetensors(out, tensors, metadata);
          }};
}

CheckpointWriter::CheckpointWriter(Fs& fs, std::string dir, std::string_view job_id, Manifest about)
    : fs_(fs),
      dir_(std::move(dir)),
      suffix_(fmt::format("{}-{}-{}", step_name(about.step), as_component(job_id), nonce())),
      manifest_(std::move(about)) {
  LATHE_CHECK(manifest_.step >= 0 && manifest_.step < 1'000'000'000'000'000'000, "step {}", manifest_.step);
  manifest_.files.clear();
  make_dirs(fs_, dir_);
  const std::string tmp = join_path(dir_, fmt::format("{}{}", kTmp, suffix_));
  make_dir(fs_, tmp);
  tmp_ = tmp;
}

CheckpointWriter::~CheckpointWriter() { discard(); }

void CheckpointWriter::discard() noexcept {
  if (tmp_.empty()) return;
  try {
    remove_tree(fs_, tmp_);
  } catch (...) {
    // The disk is in trouble and that error is already on its way; the next start removes what is left.
  }
  tmp_.clear();
}

void CheckpointWriter::add(const CheckpointFile& file) {
  LATHE_CHECK(is_plain_name(file.name) && file.name != kManifestName, "checkpoint file name {}", file.name);
  FileWriter out(fs_, join_path(tmp_, file.name));
  file.write(out);
  record(file.name, {out.finish()});
}

void CheckpointWriter::prepare(std::span<const CheckpointFile> files) {
  for (const CheckpointFile& file : files) {
    LATHE_CHECK(is_plain_name(file.name) && file.name != kManifestName, "checkpoint file name {}", file.name);
    File::create(fs_, join_path(tmp_, file.name)).close();
  }
}

void CheckpointWriter::record(std::string name, std::vector<FileDigest> pieces) {
  LATHE_CHECK(!pieces.empty(), "{}: nobody wrote it", name);
  const FileDigest first = pieces.front();
  std::erase_if(pieces, [](const FileDigest& piece) { return piece.size == 0; });
  if (pieces.empty()) pieces.push_back(first);
  manifest_.files.push_back({.name = std::move(name), .pieces = std::move(pieces)});
}

std::vector<FileDigest> write_slices(Fs& fs, const std::string& path, std::span<const CheckpointFile> files, int ranks,
                                     int rank) {
  std::vector<FileDigest> digests;
  std::optional<UserError> failed;
  for (const CheckpointFile& file : files) {
    FileWriter out(fs, join_path(path, file.name), slice_of(file.size, ranks, rank));
    file.write(out);
    LATHE_CHECK(out.size() == file.size, "{}: {} bytes were promised, {} written", out.path(), file.size, out.size());
    try {
      digests.push_back(out.finish());
    } catch (const UserError& e) {
      if (!failed) failed = e;
    }
  }
  if (failed) throw UserError(*failed);
  return digests;
}

std::string CheckpointWriter::publish() {
  manifest_.version = version_for(manifest_);
  FileWriter out(fs_, join_path(tmp_, kManifestName));
  out.write(to_json(manifest_));
  out.finish();
  sync_dir(fs_, tmp_);

  const std::string name = step_name(manifest_.step), path = join_path(dir_, name);
  if (existing_checkpoint(fs_, dir_, manifest_)) {
    discard();
    return path;
  }
  // One that is there is replaced at once, where the file system can do that.
  std::string trash;
  if (info_at(fs_, path) && exchange_paths(fs_, tmp_, path)) {
    trash = std::exchange(tmp_, "");
  } else {
    if (info_at(fs_, path)) trash = move_to_trash(fs_, dir_, name);
    rename_path(fs_, tmp_, path);
    tmp_.clear();
  }
  sync_dir(fs_, dir_);
  if (!trash.empty()) {
    Notes ignored;  // the next start tries again
    try_or_note(ignored, [&] { remove_tree(fs_, trash); });
  }
  return path;
}

std::string publish_checkpoint(Fs& fs, const std::string& dir, std::string_view job_id, Manifest about,
                               std::span<const CheckpointFile> files) {
  if (const auto path = existing_checkpoint(fs, dir, about)) return *path;
  CheckpointWriter writer(fs, dir, job_id, std::move(about));
  for (const CheckpointFile& file : files) writer.add(file);
  return writer.publish();
}

Inspection inspect_checkpoint(Fs& fs, const std::string& path, Verify verify) {
  using Status = Inspection::Status;
  Inspection found;
  try {
    found.manifest = parse_manifest(read_manifest_text(fs, path));
    const Manifest& m = found.manifest;
    if (m.version > kManifestVersion) {
      found.status = Status::newer;
      found.reason = fmt::format(
          "checkpoint format version {} (written by {}) is newer than {}, the newest this program reads; "
          "use that program, or a newer one",
          m.version, m.software, kManifestVersion);
      return found;
    }
    // A copy under a name of the user's own is fine; one under another step's name would be taken for that step.
    const auto step = parse_step(path.substr(path.find_last_of('/') + 1));
    LATHE_USER_CHECK(!step || *step == m.step, "the manifest is of step {}", m.step);
    for (const ManifestFile& file : m.files) check_file(fs, path, file, verify);
    found.status = Status::valid;
  } catch (const UserError& e) {
    found.reason = e.what();
  }
  return found;
}

std::vector<int64_t> list_steps(Fs& fs, const std::string& dir) {
  std::vector<int64_t> steps;
  if (!info_at(fs, dir)) return steps;
  for (const std::string& name : list_dir(fs, dir))
    if (const auto step = parse_step(name)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<Checkpoint> find_newest_valid(Fs& fs, const std::string& dir, Verify verify, Notes& notes) {
  const std::vector<int64_t> steps = list_steps(fs, dir);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    std::string path = join_path(dir, step_name(*step));
    Inspection found = inspect_checkpoint(fs, path, verify);
    refuse_newer(path, found);
    if (found.status == Inspection::Status::valid)
      return Checkpoint{.path = std::move(path), .manifest = std::move(found.manifest)};
    notes.push_back(fmt::format("checkpoint {} is damaged and was skipped: {}", path, found.reason));
  }
  return std::nullopt;
}

void clean_leftovers(Fs& fs, const std::string& dir, Notes& notes) {
  if (!info_at(fs, dir)) return;
  for (const std::string& name : list_dir(fs, dir)) {
    const bool left =
        name.starts_with(std::string(kTmp).append(kStep)) || name.starts_with(std::string(kTrash).append(kStep));
    if (left) try_or_note(notes, [&] { remove_tree(fs, join_path(dir, name)); });
  }
}

Retention::Retention(int64_t keep_last) : keep_last_(keep_last) {
  LATHE_USER_CHECK(keep_last >= 1, "checkpoint.keep_last: expected at least 1, got {}", keep_last);
}

void Retention::apply(Fs& fs, const std::string& dir, Notes& notes) {
  std::vector<int64_t> old = list_steps(fs, dir);
  int64_t valid = 0;
  while (!old.empty() && valid < keep_last_) {
    const int64_t step = old.back();
    old.pop_back();
    const std::string path = join_path(dir, step_name(step));
    const Inspection found = inspect_checkpoint(fs, path, hashed_.count(step) ? Verify::size : Verify::full);
    if (found.status == Inspection::Status::valid) {
      hashed_.insert(step);
      ++valid;
    } else {
      notes.push_back(fmt::format("checkpoint {} does not count for keep_last: {}", path, found.reason));
    }
  }
  if (valid < keep_last_ || old.empty()) return;
  try_or_note(notes, [&] {
    std::vector<std::string> trash;
    for (const int64_t step : old) {
      trash.push_back(move_to_trash(fs, dir, step_name(step)));
      hashed_.erase(step);
    }
    sync_dir(fs, dir);  // before any content goes: a power loss must not bring back a name with half a checkpoint
    for (const std::string& path : trash) remove_tree(fs, path);
  });
}

}  // namespace lathe::io
