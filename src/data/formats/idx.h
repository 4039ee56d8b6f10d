// IDX files (the format of MNIST and Fashion-MNIST): a magic number, big-endian dimensions, bytes; plain or gzip.
// Nothing is allocated before the declared dimensions agree with the size of the file.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/shape.h"
#include "data/source.h"

namespace lathe::data {

struct IdxArray {
  Shape shape;
  std::vector<std::byte> file;  // the file after decompression: header, then the elements
  int64_t header_bytes = 0;

  const uint8_t* elements() const { return reinterpret_cast<const uint8_t*>(file.data()) + header_bytes; }
};

// Parses the content of an IDX or gzipped IDX file with u8 elements. `name` stands in errors.
IdxArray parse_idx(std::vector<std::byte> content, const std::string& name);

// Fields "image" u8[H, W, C] (C = 1 for 3-dimensional files) and "label" i32[]. Labels must be in [0, classes);
// classes = 0 takes the largest label + 1; a Misfit otherwise.
std::unique_ptr<Source> load_idx(const std::string& images_path, const std::string& labels_path, int64_t classes);

// A folder with files named like MNIST's: {train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without .gz.
std::unique_ptr<Source> load_idx_folder(const std::string& folder, Split split, int64_t classes);
SourceInfo describe_idx_folder(const std::string& folder, Split split, int64_t classes);  // from the headers alone

bool has_idx_test(const std::string& folder);  // the t10k files

inline constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

// Fashion-MNIST from `folder`, or from where Debian's package puts it when `folder` is empty.
std::unique_ptr<Source> load_fashion_mnist(const std::string& folder, Split split);
SourceInfo describe_fashion_mnist(const std::string& folder, Split split);  // of Debian's without opening a file
std::vector<std::string> fashion_mnist_class_names();

}  // namespace lathe::data
