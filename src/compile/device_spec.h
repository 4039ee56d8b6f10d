// Device specs: descriptions of cards that need not be here, for `lathe plan --target`. targets/*.toml are embedded;
// users add their own by naming a file. The files are TOML: numbers and texts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/target.h"
#include "plan/program.h"

namespace lathe {

struct EmbeddedDeviceSpec {     // A device spec within the program.
  std::string_view name, text;  // of targets/NAME.toml
};
std::span<const EmbeddedDeviceSpec> embedded_device_specs();  // sorted by name

struct DeviceSpecPeak {  // Rate of one type.
  std::string type;      // f32, tf32, bf16, f16
  double flops = 0;      // per second
};

struct DeviceSpec {                        // A card as a device spec describes it.
  std::string name, description, backend;  // name and backend as in recipes, description for people
  int64_t memory = 0;                      // bytes
  int64_t largest_allocation = 0;          // 0: all of the memory
  double bandwidth = 0;                    // of the card's memory, bytes per second
  double transfer = 0;                     // from the host, bytes per second
  int capability = 0;                      // cuda: compute capability times 10
  std::vector<DeviceSpecPeak> peaks;       // of the types that it knows
};

// A built-in name or a path. UserError with file, line and what was expected.
DeviceSpec load_device_spec(const std::string& name_or_path);
DeviceSpec parse_device_spec(std::string_view text, const std::string& file);  // of its text; `file` is for errors

// The least time that a Program can take there: each launch at the peak of its arithmetic or at the memory's bandwidth,
// whichever is slower. 16-bit products are counted at their own peak where a library computes them in 16 bits, f32
// products at that of TF32 where LATHE_TF32=1; all else at the peak of f32.
double least_seconds(const Program&, const DeviceSpec&);

// What passes and plan see: the backend's kernels, the card's limits and its f32 peak.
Target target_of_spec(const DeviceSpec&);

}  // namespace lathe
