# toml++ is used as a header in one source. recipes/*.toml and targets/*.toml become generated sources, so the program
# needs no files.
find_path(LATHE_TOML_INCLUDE toml++/toml.h REQUIRED)
target_include_directories(${lib} PRIVATE ${LATHE_TOML_INCLUDE})

# lathe_embed_toml(folder struct function): every folder/*.toml as {name, text} of a span that function() returns.
function(lathe_embed_toml folder header struct function)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.toml)
  list(SORT files)
  set(text "// Generated from ${folder}/*.toml.\n#include \"${header}\"\n\nnamespace lathe {\n")
  string(APPEND text "static const ${struct} k${struct}s[] = {\n")
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    get_filename_component(name ${file} NAME_WLE)
    file(READ ${file} content)
    string(APPEND text "    {\"${name}\", R\"LATHE(${content})LATHE\"},\n")
  endforeach()
  string(APPEND text "};\nstd::span<const ${struct}> ${function}() { return k${struct}s; }\n}  // namespace lathe\n")
  set(source ${CMAKE_BINARY_DIR}/generated/embedded_${folder}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "@text@" @ONLY)
  target_sources(${lib} PRIVATE ${source})
endfunction()
lathe_embed_toml(recipes train/recipe_builtin.h BuiltinRecipe embedded_recipes)
lathe_embed_toml(targets train/targets.h EmbeddedTarget embedded_targets)
