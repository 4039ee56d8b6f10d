# lathe_embed_text(target namespace files...): each file becomes `extern const char* const <stem>` in `namespace`
# (declare it in a header), compiled into the target. Editing a text rebuilds only its generated source.
# Run as a script (-DINPUT -DOUTPUT -DNAMESPACE -DSYMBOL) it writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${INPUT} text)
  # Compilers limit the length of one literal; adjacent raw literals join.
  string(REPLACE "\n\n" "\n)lathe_text\"\nR\"lathe_text(\n" text "${text}")
  file(WRITE ${OUTPUT}
       "namespace ${NAMESPACE} {\nextern const char* const ${SYMBOL};\nconst char* const ${SYMBOL} = R\"lathe_text(${text})lathe_text\";\n}\n")
  return()
endif()

set(LATHE_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(lathe_embed_text target namespace)
  foreach(input ${ARGN})
    get_filename_component(symbol ${input} NAME_WE)
    string(MAKE_C_IDENTIFIER "${symbol}" symbol)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded/${target}/${symbol}.cpp)
    add_custom_command(
      OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DNAMESPACE=${namespace} -DSYMBOL=${symbol}
              -P ${LATHE_EMBED_SCRIPT}
      DEPENDS ${input} ${LATHE_EMBED_SCRIPT}
      VERBATIM)
    target_sources(${target} PRIVATE ${output})
  endforeach()
endfunction()
