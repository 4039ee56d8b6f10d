// A checksum as the last member of a JSON text: XXH3-128 of all bytes before that member, so that any damage is found.
#pragma once

#include <string>
#include <string_view>

namespace lathe::io {

std::string with_checksum(std::string object);  // an object as dump(2) writes it
// UserError naming `name` where the text does not end with the checksum of what is before it.
void check_checksum(std::string_view text, std::string_view name);

}  // namespace lathe::io
