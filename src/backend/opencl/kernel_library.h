// Compiles kernel texts for one device. Texts are collected while kernels are bound and compiled together, at the first
// launch: one build of many kernels costs far less than many builds of one (measured with PoCL 3.1: 10 kernels 1.3 s
// together, 3.7 s apart). Equal texts are compiled once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/kernels/binary_cache.h"
#include "backend/opencl/opencl_handle.h"

namespace lathe {

class KernelLibrary {
 public:
  // `pocl_files`: the cache keeps the files of PoclFolder in place of binaries.
  KernelLibrary(cl_context, cl_device_id, BinaryCache, bool pocl_files);

  struct Text {
    std::string source;
    cl_program program = nullptr;  // null: not compiled yet, or in vain
    std::string error;             // of the compiler
  };
  // Announces a text; the result stays valid for the library's life.
  const Text* add(const std::string& source);
  // A new kernel object of the text; compiles everything announced so far. DeviceError with the compiler's log; texts
  // that the compiler refuses do not harm the others.
  ClKernel make(const Text*, const std::string& kernel);

  // PoCL compiles a kernel when it runs for the first time, so that its files are complete only when all have run.
  void ran_first_time(int64_t kernels) { ran_ += kernels; }
  void keep();               // what has been compiled so far, in the cache
  void keep_now_and_then();  // when twice as many kernels have run as at the last time: an effort linear in all

  int builds() const { return builds_; }          // programs made from source
  int cache_hits() const { return cache_hits_; }  // programs made from the cache
  int programs() const { return builds_ + cache_hits_; }

 private:
  void build_pending();
  // The texts as one program; "" or the compiler's log.
  std::string build(const std::vector<Text*>&);
  ClProgram from_source(const std::string& source, std::string* log);
  ClProgram from_cache(const std::string& key);
  void to_cache(const std::string& key, cl_program) const;

  cl_context context_;
  cl_device_id device_;
  BinaryCache cache_;
  bool pocl_files_;
  std::vector<std::string> keys_;  // of the programs, with pocl_files_
  int64_t ran_ = 0, ran_when_kept_ = 0;
  std::map<std::string, std::unique_ptr<Text>, std::less<>> texts_;
  std::vector<Text*> pending_;
  std::vector<ClProgram> programs_;
  int builds_ = 0, cache_hits_ = 0;
};

}  // namespace lathe
