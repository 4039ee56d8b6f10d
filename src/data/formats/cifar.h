// The binary files of CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): records of one or two label bytes and an image of
// 32 x 32 pixels, plane by plane. Nothing is allocated before the sizes of all files are known to be whole records.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/source.h"

namespace lathe::data {

struct CifarRecord {  // The form of a record.
  int64_t labels;     // bytes before the pixels
  int64_t label;      // which of them is read
  int64_t classes;    // it is below that
  int64_t bytes() const { return labels + int64_t{32} * 32 * 3; }
};
// CIFAR-10; CIFAR-100 with its 100 classes; CIFAR-100 with its 20 superclasses.
inline constexpr CifarRecord kCifar10{1, 0, 10}, kCifar100{2, 1, 100}, kCifar100Coarse{2, 0, 20};

// The number of records in the content of one file. UserError: a part of a record, none, a label that is too large.
int64_t check_cifar(std::span<const std::byte> content, const CifarRecord&, const std::string& name);

// Fields "image" u8[32, 32, 3] and "label" i32[] of a folder with data_batch_1.bin, ... and test_batch.bin (CIFAR-10)
// or train.bin and test.bin (CIFAR-100). classes: 10; of CIFAR-100 100 or 20; 0: 10 or 100; a Misfit
// otherwise.
std::unique_ptr<Source> load_cifar(const std::string& folder, Split split, int64_t classes);
SourceInfo describe_cifar(const std::string& folder, Split split, int64_t classes);  // from the sizes of files alone

bool has_cifar_test(const std::string& folder);
// From batches.meta.txt, fine_label_names.txt or coarse_label_names.txt; empty where it has not `classes` lines.
std::vector<std::string> cifar_class_names(const std::string& folder, int64_t classes);

}  // namespace lathe::data
