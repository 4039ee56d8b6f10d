// Hints for typing errors: the known word that was probably meant.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace lathe {

// Edit distance with transpositions (optimal string alignment), ignoring case; of the first 80 characters.
int edit_distance(std::string_view a, std::string_view b);
// The same, but a beginning of the word, or the word with something behind it, counts as one error.
int word_distance(std::string_view wrong, std::string_view word);
int allowed_distance(std::string_view wrong);  // up to this distance a word may be meant

// The word nearest to `wrong`, when it is near enough to be meant; the first of several that are as near.
std::optional<std::string_view> did_you_mean(std::string_view wrong, std::span<const std::string_view> words);

}  // namespace lathe
