// Arrays of NumPy: .npy files, or the members of an .npz file. Numbers in any order; no objects, nothing is unpickled.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "data/samples.h"
#include "data/source.h"

namespace lathe::data {

struct NpyArray {
  char kind = 'f';  // 'f', 'i', 'u', 'b'
  int item = 4;     // bytes of an element
  Shape shape;
  std::vector<std::byte> file;  // elements little-endian, in C order
  int64_t header_bytes = 0;

  bool whole() const { return kind != 'f'; }
  double at(int64_t i) const;
};

// UserError with `name` for what is no array, or none of numbers. Nothing is allocated, but for Fortran order a second
// copy of the checked content.
NpyArray parse_npy(std::vector<std::byte> content, const std::string& name);

struct NpyConfig {
  std::string path = {};  // an .npz file, or a folder of .npy files: x_train, y_train, x_test, y_test; or x and y, of
                          // whose samples every fifth is a test sample
  LabelKind label = LabelKind::class_index;
  int64_t classes = 0;      // labels must be below; 0: the largest and one
  int64_t row = 0;          // x [N, F]: a sample is [F / row, row, 1]; 0: [1, F, 1]
  bool standardize = true;  // numbers that are no pixels get mean 0 and deviation 1 as on the training samples
  int64_t vocab = 0;        // above 0: x are tokens, below vocab
};

// How the numbers of a sample are standardised, each by itself: (number - mean) / scale. Empty where they are not: they
// are pixels, tokens, or wanted as they are.
struct NpyScaling {
  std::vector<double> mean = {}, scale = {};
  friend bool operator==(const NpyScaling&, const NpyScaling&) = default;
};

// Fields by the arrays: x u8 [N, H, W] or [N, H, W, C] are images; other x are numbers, f32 [...], [T, W, 1] for
// [N, T, W]; tokens are i32[T]. y: whole numbers [N] are labels, i32[]; for values f32[k] of [N] or [N, k],
// standardised; for masks u8[H, W]. LabelKind::image needs no y.
// `learned` gets the scaling.
std::unique_ptr<Source> load_npy(const NpyConfig&, Split, NpyScaling* learned = nullptr);
SourceInfo describe_npy(const NpyConfig&, Split);  // reads the arrays as well

bool is_npy(std::span<const std::byte> start);  // or .npz: an archive
bool has_npy_test(const std::string& path);     // test arrays, or samples of which every fifth is for testing
NpyScaling learn_npy(const NpyConfig&);         // from the training samples
// The samples of an .npy file, or of x or x_test in an .npz file, prepared as those of training. No file but `path` is
// opened.
Samples read_npy_samples(const NpyConfig&, const NpyScaling&, const std::string& path);

}  // namespace lathe::data
