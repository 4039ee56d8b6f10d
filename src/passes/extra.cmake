# Golden texts of the passes.
set_source_files_properties(${dir}/golden_test.cpp PROPERTIES COMPILE_DEFINITIONS LATHE_GOLDEN_DIR="${dir}/golden")
