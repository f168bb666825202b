# SPDX-License-Identifier: Apache-2.0
# libFuzzer targets, in the preset `fuzz` only (they need clang). tools/run_fuzz.py builds and runs them.
option(PELTON_FUZZ "Build the fuzz targets (clang)" OFF)
if(PELTON_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# pelton_fuzz(name LINKS layer...): fuzz_<name> from tests/fuzz/<name>_fuzz.cc.
function(pelton_fuzz name)
  cmake_parse_arguments(ARG "" "" "LINKS" ${ARGN})
  if(NOT PELTON_FUZZ)
    return()
  endif()
  add_executable(fuzz_${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}_fuzz.cc)
  target_include_directories(fuzz_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(fuzz_${name} PRIVATE pelton_flags)
  foreach(layer ${ARG_LINKS})
    target_link_libraries(fuzz_${name} PRIVATE pelton_${layer})
  endforeach()
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endfunction()

# Every parser of files or requests. A new one: a file tests/fuzz/<name>_fuzz.cc and a line here.
function(pelton_fuzz_targets)
  pelton_fuzz(tensor_file LINKS tensor)
  pelton_fuzz(ir_text LINKS ir)
  pelton_fuzz(plan_file LINKS runtime)
  pelton_fuzz(onnx_model LINKS onnx)
  pelton_fuzz(image_file LINKS data)
  pelton_fuzz(data_container LINKS data)
endfunction()
