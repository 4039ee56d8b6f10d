// TypeList: the type of every value of a graph. Values are many and their types few: each type is kept once, a value
// has its number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/shape.h"

namespace lathe {

class TypeList {  // A vector of types, as far as anybody needs one.
 public:
  class const_iterator {  // For algorithms of the standard library.
   public:
    using iterator_category = std::forward_iterator_tag;  // for the standard library
    using value_type = TensorType;                        // for the standard library
    using difference_type = std::ptrdiff_t;               // for the standard library
    using pointer = const TensorType*;                    // for the standard library
    using reference = const TensorType&;                  // for the standard library

    const_iterator() = default;                                                // nowhere
    const_iterator(const TypeList* list, size_t at) : list_(list), at_(at) {}  // at one element
    reference operator*() const { return (*list_)[at_]; }                      // the type
    pointer operator->() const { return &(*list_)[at_]; }                      // of the type
    const_iterator& operator++() {                                             // the next one
      ++at_;
      return *this;
    }
    const_iterator operator++(int) {  // the next one
      const_iterator old = *this;
      ++at_;
      return old;
    }
    bool operator==(const const_iterator&) const = default;  // the same element

   private:
    const TypeList* list_ = nullptr;
    size_t at_ = 0;
  };

  size_t size() const { return numbers_.size(); }                               // number of values
  bool empty() const { return numbers_.empty(); }                               // none
  const TensorType& operator[](size_t i) const { return types_[numbers_[i]]; }  // of value i; until the next push_back
  const_iterator begin() const { return {this, 0}; }                            // the first
  const_iterator end() const { return {this, size()}; }                         // behind the last
  void push_back(const TensorType& t) { numbers_.push_back(number_of(t)); }     // one more
  void set(size_t i, const TensorType& t) { numbers_[i] = number_of(t); }       // another type for value i
  void reserve(size_t values) { numbers_.reserve(values); }                     // room for so many
  void truncate(size_t values) { numbers_.resize(std::min(values, size())); }   // forgets all behind

 private:
  uint32_t number_of(const TensorType&);

  std::vector<uint32_t> numbers_;  // by value: which of types_
  std::vector<TensorType> types_;  // no two are equal
  std::vector<uint32_t> slots_;    // 1 + index of types_ by hash, with open addressing; empty while there are few
  uint32_t last_ = 0;              // that was asked for; neighbours are often alike
};

}  // namespace lathe
