// What a prediction needs to know of a run's data: data.json of the run directory, written when training starts, so
// that the directory is enough to predict. Runs on arrays of a program have none: their recipe has it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/files/fs.h"
#include "recipe/sources/preparation.h"
#include "workload/dataset.h"

namespace lathe {

inline constexpr const char* kRunDataFile = "data.json";  // within a run directory
// Two numbers for each of a million in a sample. A parsed file takes at most eight times as much memory.
inline constexpr int64_t kMaxRunDataBytes = int64_t{64} << 20;

struct RunData {
  DataSpec spec;  // resident_bytes is 0 in the file: nothing is held for a prediction
  Preparation preparation;
};

// Doubles as they are, bit by bit; strings that are no UTF-8 become arrays of their bytes. A checksum is the last
// member.
std::string to_json(const RunData&);
// UserError naming `path` and the field for anything that to_json does not write.
RunData parse_run_data(std::string_view text, const std::string& path);

// False, with no such file left there, where it would be larger than what is read again.
bool write_run_data(io::Fs&, const std::string& run, const RunData&);

// Of data.json; from the data themselves where there is none (older versions wrote none), or where the recipe reads
// samples in another way than the run's own. UserError as parse_run_data or describe_data.
RunData load_run_data(const std::string& run, const Recipe&);

}  // namespace lathe
