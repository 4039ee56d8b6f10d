// Data sets that recipes train on and that no build installs: `lathe fetch NAME`. The program that gets them is a
// script (tools/fetch-data), kept as text within this one: the list of names is the script's.
#pragma once

#include <string>
#include <string_view>

namespace lathe::data {

const char* fetch_script();             // in Python; its arguments: [NAME [FOLDER]]
bool can_fetch(std::string_view name);  // whether the script knows it

// What to say of data that are missing at `path`: the command that puts them there where the path is in the folder of a
// data set, like data/ucr/FordA_TRAIN.tsv, else how to see the list.
std::string fetch_hint(const std::string& path);

}  // namespace lathe::data
