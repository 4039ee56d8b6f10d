# toml++ is used as a header in one source. recipes/*.toml become a generated source, so the program needs no files.
find_path(LATHE_TOML_INCLUDE toml++/toml.h REQUIRED)
target_include_directories(${lib} PRIVATE ${LATHE_TOML_INCLUDE})
include(${CMAKE_SOURCE_DIR}/cmake/embed_toml.cmake)
lathe_embed_toml(recipes recipe/recipe_builtin.h BuiltinRecipe embedded_recipes)
