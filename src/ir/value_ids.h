// ValueIds: the values that a node reads or defines, or nodes that belong together. Up to four, which is what most
// have, lie in the list itself: a graph has many nodes, and passes allocate and visit them again and again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>

namespace lathe {

using ValueId = int32_t;  // index of Graph::types

class ValueIds {  // A vector of them, as far as anybody needs one.
 public:
  using value_type = ValueId;             // for the standard library
  using iterator = ValueId*;              // contiguous
  using const_iterator = const ValueId*;  // contiguous

  ValueIds() = default;                                                                           // empty
  ValueIds(std::initializer_list<ValueId> ids) : ValueIds(std::span(ids.begin(), ids.size())) {}  // these
  explicit ValueIds(std::span<const ValueId> ids) { append(ids); }                                // a copy
  ValueIds(const ValueIds& other) { append(other); }                                              // a copy
  ValueIds(ValueIds&& other) noexcept { swap(other); }  // `other` is empty then
  ValueIds& operator=(ValueIds other) noexcept {        // its ids
    swap(other);
    return *this;
  }

  size_t size() const { return size_; }                            // number of values
  bool empty() const { return size_ == 0; }                        // none
  iterator begin() { return data(); }                              // the first
  iterator end() { return data() + size_; }                        // behind the last
  const_iterator begin() const { return data(); }                  // the first
  const_iterator end() const { return data() + size_; }            // behind the last
  ValueId& operator[](size_t i) { return data()[i]; }              // value i
  const ValueId& operator[](size_t i) const { return data()[i]; }  // value i
  ValueId& back() { return data()[size_ - 1]; }                    // the last
  const ValueId& back() const { return data()[size_ - 1]; }        // the last

  void push_back(ValueId v) {  // one more
    if (size_ == capacity_) reserve(2 * size_t{capacity_});
    data()[size_++] = v;
  }
  void reserve(size_t capacity) {  // room for so many
    if (capacity <= capacity_) return;
    auto more = std::make_unique<ValueId[]>(capacity);
    std::ranges::copy(*this, more.get());
    many_ = std::move(more);
    capacity_ = static_cast<uint32_t>(capacity);
  }
  void append(std::span<const ValueId> ids) {  // these behind the others
    reserve(size_ + ids.size());
    std::ranges::copy(ids, end());
    size_ += static_cast<uint32_t>(ids.size());
  }
  void erase(ValueId v) { truncate(static_cast<size_t>(std::remove(begin(), end(), v) - begin())); }  // wherever it is
  void truncate(size_t count) { size_ = static_cast<uint32_t>(count); }  // the first ones are left
  void clear() { size_ = 0; }                                            // none is left

  friend bool operator==(const ValueIds& a, const ValueIds& b) { return std::ranges::equal(a, b); }  // in order

 private:
  static constexpr uint32_t kFew = 4;

  ValueId* data() { return many_ ? many_.get() : few_; }
  const ValueId* data() const { return many_ ? many_.get() : few_; }
  void swap(ValueIds& other) noexcept {
    std::swap(few_, other.few_);
    std::swap(many_, other.many_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  ValueId few_[kFew] = {};
  std::unique_ptr<ValueId[]> many_;  // instead of few_
  uint32_t size_ = 0, capacity_ = kFew;
};

using NodeIds = ValueIds;  // indices of Graph::nodes

}  // namespace lathe
