# SPDX-License-Identifier: Apache-2.0
# Fuzz targets, built by name: with libFuzzer in the preset `fuzz` (it needs clang), elsewhere with a driver of our own that
# sees no coverage. tools/run_fuzz.py builds and runs them.
option(PELTON_FUZZ "Build the fuzz targets (clang)" OFF)
if(PELTON_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# pelton_fuzz(name LINKS layer...): fuzz_<name> from tests/fuzz/<name>_fuzz.cc.
function(pelton_fuzz name)
  cmake_parse_arguments(ARG "" "" "LINKS" ${ARGN})
  add_executable(fuzz_${name} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}_fuzz.cc
                                               ${CMAKE_SOURCE_DIR}/tests/fuzz/mutate.cc)
  target_include_directories(fuzz_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(fuzz_${name} PRIVATE pelton_flags)
  foreach(layer ${ARG_LINKS})
    target_link_libraries(fuzz_${name} PRIVATE pelton_${layer})
  endforeach()
  if(PELTON_FUZZ)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(fuzz_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/driver_main.cc)
  endif()
endfunction()

# Every parser of files or requests. A new one: a file tests/fuzz/<name>_fuzz.cc and a line here.
function(pelton_fuzz_targets)
  pelton_fuzz(tensor_file LINKS tensor)
  pelton_fuzz(ir_text LINKS ir)
  pelton_fuzz(plan_file LINKS runtime)
  pelton_fuzz(onnx_model LINKS onnx)
  pelton_fuzz(image_file LINKS data)
  pelton_fuzz(data_container LINKS data)
  pelton_fuzz(data_file LINKS data)
  pelton_fuzz(config_text LINKS serve_core)
  if(TARGET pelton_serve_http)
    pelton_fuzz(infer_body LINKS serve_http)
  endif()
endfunction()
